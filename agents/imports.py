"""What imported names stand for: full dotted paths, and which libraries' functions surely run no backward pass."""

import ast
import builtins
import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

from headroom.agents.syntax import access_path

_BUILTINS = frozenset(dir(builtins))
# Libraries whose functions and objects, when they are called, compute, log or draw, and train nothing.
_QUIET = frozenset(
    {
        "PIL", "albumentations", "cv2", "datasets", "einops", "evaluate", "flash_attn", "jaxtyping", "lpips",
        "matplotlib", "ml_collections", "numpy", "omegaconf", "pandas", "rich", "safetensors", "scipy", "seaborn",
        "sklearn", "skimage", "tensorboard", "tensorboardX", "tokenizers", "torch", "torchaudio", "torchmetrics",
        "torchtext", "torchvision", "tqdm", "transformers", "wandb",
    }
)  # fmt: skip
# Of torch, what gives gradients of a tensor that it is handed.
_GRADIENTS = ("torch.autograd.grad", "torch.autograd.backward", "torch.autograd.functional.")


@functools.lru_cache(maxsize=256)
def imported_names(tree: ast.Module) -> Mapping[str, str]:
    """Full dotted paths by the names that a file's imports bind; relative ones keep their leading dots."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                found[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            joint = "" if module.endswith(".") else "."
            for alias in node.names:
                found[alias.asname or alias.name] = f"{module}{joint}{alias.name}"
    return MappingProxyType(found)


def full_path(node: ast.AST, imports: Mapping[str, str]) -> str | None:
    """`torch.nn.functional.relu` for `F.relu`; None where the root is no imported name."""
    path = access_path(node)
    if path is None:
        return None
    root, dot, rest = path.partition(".")
    return f"{imports[root]}{dot}{rest}" if root in imports else None


def is_quiet(path: str) -> bool:
    """Whether calling this, or what it makes, is known to run no backward pass; `path` comes from `full_path`."""
    root = path.split(".")[0]
    return (root in _QUIET or root in sys.stdlib_module_names) and not gives_gradients(path)


def gives_gradients(path: str) -> bool:
    """`torch.autograd.grad` and the like, under whatever name it was imported."""
    return path.startswith(_GRADIENTS)


def is_builtin(name: str) -> bool:
    """`sum`, `print` and the like."""
    return name in _BUILTINS


def own_module(path: str, files: Iterable[str]) -> bool:
    """Whether a dotted path names one of the program's files, or something in one."""
    return path.startswith(".") or module_depth(path, files) > 0


def module_depth(path: str, files: Iterable[str]) -> int:
    """How many parts of a dotted path name one of the program's files: 1 of `bank.KEPT.append`; 0 when none do."""
    parts = [part for part in path.split(".") if part]
    tails = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    known = [depth for depth, tail in enumerate(tails, 1) for file in files if _is_file(tail, file)]
    return max(known, default=0)


def _is_file(tail: str, file: str) -> bool:
    pure = PurePosixPath(file.replace("\\", "/"))
    module = pure.parent if pure.name == "__init__.py" else pure.with_suffix("")
    return f"/{module}".endswith(f"/{tail}")

"""Puts the virtual device into a running interpreter."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import distributed, guard, hooks, lifecycle, torch_cuda
from . import encoder as _encoder  # noqa: F401  (registers its handlers)
from . import gradients as _gradients  # noqa: F401  (registers its handlers)
from . import indexing as _indexing  # noqa: F401  (registers its handlers)
from . import losses as _losses  # noqa: F401  (registers its handlers)
from .cards import CARDS
from .cuda_functions import SETTINGS_IGNORED
from .device import VirtualDevice
from .dispatch import Dispatcher
from .generators import CudaGenerator
from .handlers import HANDLERS
from .native import NativeError
from .nested import register_nested
from .registration import register
from .stacks import Stacks
from .storages import install as install_storages
from .support import INSTALLED_MARK, Unsupported, untried_version
from .tensors import Tensors
from .values import FakeValues

_TORCH_FOLDER = Path(torch.__file__).parent
_OWN_FOLDER = Path(__file__).resolve().parent
_GENERATOR_OFFSET = 16  # PyObject_HEAD; checked against the generator's own word

ALLOCATOR_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")

_installed: list[Tensors] = []


class _Autograd:
    """Answers `Stacks`' questions."""

    def __init__(self) -> None:
        autograd = torch._C._autograd
        get = getattr(autograd, "_get_sequence_nr", None) or torch.autograd._get_sequence_nr
        self.next_sequence_number = get
        self.current_node = torch._C._current_autograd_node


def install_device(card: str, capacity_bytes: int | None, *, unlimited: bool) -> VirtualDevice:
    """Installs the card's device; `support.unsupported_reason` must have returned None.

    Raises:
        Unsupported: torch or the system refuses on the way.
    """
    device = VirtualDevice(
        CARDS[card], capacity_bytes, unlimited=unlimited, error=torch.OutOfMemoryError
    )
    generator = CudaGenerator()
    autograd = _Autograd()
    try:
        tensors = Tensors(device, FakeValues(), autograd.current_node)
        _patch_native(generator)
    except NativeError as error:
        raise Unsupported(f"the virtual GPU does not work here: {error}") from None
    stacks = Stacks(autograd, _is_hidden)
    device.take_stack = stacks.take
    device.frames_of = stacks.frames
    dispatcher = Dispatcher(
        device, tensors, stacks, generator, HANDLERS, initialise=torch.cuda._lazy_init
    )
    torch_cuda.install(dispatcher)
    libraries = [*register(dispatcher), register_nested(dispatcher)]
    install_storages(dispatcher)
    distributed.install(device)
    _replace_compile(device)
    # Assumed values may lie outside of any distribution's support.
    torch.distributions.Distribution.set_default_validate_args(False)
    lifecycle.follow(after_fork=_lose_after_fork(dispatcher, tensors))
    _keep_for_ever(generator, dispatcher, libraries)
    _installed.append(tensors)
    setattr(torch._C, INSTALLED_MARK, True)
    _report_doubts(device)
    return device


def is_known(tensor: Any) -> bool:
    """Whether a tensor's values were computed, all the way from values that were."""
    if not tensor.is_cuda or not _installed:
        return True
    storage = _installed[0].storage_of(tensor)
    return storage.known and not storage.assumed


def _report_doubts(device: VirtualDevice) -> None:
    """What is doubtful whatever the program does."""
    untried = untried_version(torch)
    if untried is not None:
        device.report.not_modelled(untried)
    if "total_memory_bytes" not in device.card.measured:
        device.report.not_modelled(
            f"The constants of the {device.name} come from public specifications; only an H200's were measured."
        )
    if any(os.environ.get(name) for name in ALLOCATOR_SETTINGS):
        device.report.not_modelled(SETTINGS_IGNORED)


def _patch_native(generator: Any) -> None:
    address = id(generator) + _GENERATOR_OFFSET
    if ctypes.c_uint64.from_address(address).value != generator._cdata:
        raise Unsupported("the virtual GPU does not know how this Python lays out its objects")
    if not guard.install(_TORCH_FOLDER, torch._C._ensureCUDADeviceGuardSet):
        raise Unsupported(
            "torch kept its own CUDA device guard, so a real device seems to be there"
        )
    hooks.install(_TORCH_FOLDER, address)


def _is_hidden(filename: str) -> bool:
    """Files whose frames are not the program's: ours, and torch's wrappers around our kernels."""
    return filename.startswith(_HIDDEN_FOLDERS) or filename in _HIDDEN_FILES


_HIDDEN_FOLDERS = (
    str(_OWN_FOLDER) + os.sep,
    str(_OWN_FOLDER.parent / "recorder") + os.sep,
)
_HIDDEN_FILES = frozenset(str(_TORCH_FOLDER / name) for name in ("library.py", "_ops.py"))


def _replace_compile(device: VirtualDevice) -> None:
    """Compiled programs run eagerly: Triton kernels need a real device."""

    def compile_nothing(model: Any = None, **options: Any) -> Any:
        """Returns the model as it is."""
        device.report.not_modelled(
            "torch.compile is left out: the program ran eagerly, and compiled memory is not predicted."
        )
        return model if model is not None else lambda function: function

    torch.compile = compile_nothing


def _lose_after_fork(dispatcher: Dispatcher, tensors: Tensors) -> Callable[[], None]:
    """Forked children see a device that is lost, if it was in use, as on real CUDA."""

    def lose() -> None:
        dispatcher.forked = dispatcher.initialised
        tensors.ring.renew_lock()
        dispatcher.device.allocator.renew_lock()

    return lose


def _keep_for_ever(*objects: Any) -> None:
    """Destructors of torch run after Python's; what they may touch must never go."""
    for item in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))

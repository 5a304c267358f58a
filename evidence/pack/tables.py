"""Finds a tokenizer's table on this machine. Looks at files only: nothing is ever downloaded from here."""

import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from headroom.evidence.pack.tokens import ESTIMATE, TokenCounter, byte_pairs

# Names in tiktoken's cache (SHA-1 of the address that it downloads from) and SHA-256 of the contents, from
# tiktoken_ext/openai_public.py of tiktoken 0.14.0.
_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
# These carry the tables in their wheels, under tiktoken's names.
_CARRIERS: Final = (("litellm", "litellm_core_utils/tokenizers"),)


def best_counter(encoding_name: str = "o200k_base") -> TokenCounter:
    """The counter of an encoding if its table lies on this machine and tiktoken is installed, else the estimate."""
    data = read_ranks(encoding_name)
    if data is None or importlib.util.find_spec("tiktoken") is None:
        return ESTIMATE
    return _counter(encoding_name, data)


@cache
def _counter(encoding_name: str, data: bytes) -> TokenCounter:
    return byte_pairs(encoding_name, data)


def read_ranks(encoding_name: str) -> bytes | None:
    """The table of an encoding, checked against its digest; None where no whole one lies on this machine."""
    name, digest = _FILES[encoding_name]
    for folder in _folders():
        try:
            data = (folder / name).read_bytes()
        except OSError:
            continue
        if hashlib.sha256(data).hexdigest() == digest:
            return data
    return None


def _folders() -> Iterator[Path]:
    """The cache of tiktoken, as its `load.py` looks for it, then packages that carry the tables."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        folder = os.environ.get(variable)
        if folder:
            yield Path(folder)
    yield Path(tempfile.gettempdir()) / "data-gym-cache"
    for package, inside in _CARRIERS:
        found = importlib.util.find_spec(package)
        for place in (found.submodule_search_locations or ()) if found else ():
            yield Path(place) / inside

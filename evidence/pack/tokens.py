"""How many tokens a text takes: counted where a tokenizer is at hand, else an estimate that says so. Pure.

Nothing here looks for files or asks a network: `headroom.evidence.pack.tables` finds a tokenizer's table on this
machine.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import Any, Final, Protocol

from headroom.evidence.pack.token_words import RARE_PAIRS, SIGNS, TWO, WORDS


class TokenCounter(Protocol):
    """Says how many tokens a text takes. `estimated` is false only if a real tokenizer counts every one."""

    @property
    def name(self) -> str:
        """What counts, for people."""
        ...

    @property
    def estimated(self) -> bool:
        """Whether the figures are no counts."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text; 0 for an empty one."""
        ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """An upper bound on what cl100k_base and o200k_base make of a text.

    Digits count one for three, as both split them. A word that is known to be one token in both counts one, some more
    count two. In any other word of ASCII letters no two neighbours stay alone, because nearly all pairs of letters are
    tokens: so two for three letters, and one more for each pair that is none. A sign counts one, as do some runs of
    signs and a run of spaces, a character beyond ASCII its bytes in UTF-8.
    """

    @property
    def name(self) -> str:
        """What counts, for people."""
        return "upper bound for cl100k_base and o200k_base"

    @property
    def estimated(self) -> bool:
        """Always true."""
        return True

    def count(self, text: str) -> int:
        """Tokens that the text takes at most."""
        return sum(map(_line, text.split("\n"))) + text.count("\n")


ESTIMATE: Final = Estimate()

# As both encodings split a text, or finer. One space goes with the letters or the signs behind it. Letters beside
# characters beyond ASCII are looked at one by one, since they may have gone together with those.
_PIECES: Final = re.compile(
    r"(?P<word>(?<![^\x00-\x7f]) ?[A-Za-z]+(?![^\x00-\x7f]))|(?P<digits>[0-9]+)"
    r"|(?P<signs> ?[!-/:-@\[-`{-~]+)|(?P<spaces> +(?= )| +)|(?P<far>[^\x00-\x7f]+)|(?P<letters>[A-Za-z]+)|.",
    re.DOTALL,
)
_LONGEST_RUN: Final = 64


@lru_cache(maxsize=200_000)
def _line(line: str) -> int:
    return sum(_piece(match[0], match.lastgroup) for match in _PIECES.finditer(line))


def _piece(text: str, kind: str | None) -> int:
    if kind == "word":
        bare = text.lstrip(" ")
        return 1 if bare in WORDS or len(bare) == 1 else 2 if bare in TWO else _letters(text)
    if kind == "digits":
        return ceil(len(text) / 3)
    if kind == "signs":
        return 1 if text in SIGNS else len(text.lstrip(" "))
    if kind == "spaces":
        return ceil(len(text) / _LONGEST_RUN)
    if kind == "far":
        return len(text.encode("utf-8", "surrogatepass"))
    return _letters(text) if kind == "letters" else 1


def _letters(text: str) -> int:
    """The most tokens for letters, of which no two neighbours stay alone unless they are a rare pair."""
    rare = 0
    for first, second in pairwise(text):
        if first != " " and (first.islower() != second.islower() or first + second in RARE_PAIRS):
            rare += 1
    return min(len(text), ceil(2 * len(text) / 3) + rare)


@dataclass(frozen=True, slots=True)
class Corrected:
    """Another counter's figures times a factor, for an endpoint that counts differently. No count any more."""

    counter: TokenCounter
    factor: float

    @property
    def name(self) -> str:
        """What counts, for people."""
        return f"{self.counter.name}, times {self.factor:.3f}"

    @property
    def estimated(self) -> bool:
        """Always true: what an endpoint bills is its own count."""
        return True

    def count(self, text: str) -> int:
        """Tokens, rounded up."""
        return ceil(self.counter.count(text) * self.factor)


def corrected(counter: TokenCounter, factor: float) -> TokenCounter:
    """The counter for an endpoint that bills `factor` times what the counter says.

    Raises:
        ValueError: The factor is not a positive number.
    """
    if not 0 < factor < float("inf"):
        raise ValueError(f"a correction is a positive number, not {factor}")
    return counter if factor == 1 else Corrected(counter, factor)


def learned_factor(pairs: Iterable[tuple[int, int]]) -> float:
    """The factor from what was estimated and what an endpoint then billed for the same text.

    The highest ratio seen, so that a budget that held for the estimate holds at the endpoint; 1 without any pair.
    Pairs without an estimate or a bill are passed over.
    """
    ratios = [billed / estimated for estimated, billed in pairs if estimated > 0 and billed > 0]
    return max(ratios, default=1.0)


@dataclass(frozen=True, slots=True)
class BytePairs:
    """Counts with tiktoken and a given table of ranks."""

    encoding_name: str
    _encoding: Any = field(repr=False)

    @property
    def name(self) -> str:
        """What counts, for people."""
        return f"tiktoken {self.encoding_name}"

    @property
    def estimated(self) -> bool:
        """Always false."""
        return False

    def count(self, text: str) -> int:
        """Tokens of the text; what looks like a special token is text."""
        return len(self._encoding.encode_ordinary(text))


# From tiktoken_ext/openai_public.py of tiktoken 0.14.0, whose own loader would download the ranks.
_PATTERNS: Final[Mapping[str, str]] = {
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "o200k_base": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


def byte_pairs(encoding_name: str, ranks: bytes) -> BytePairs:
    """A counter from the contents of a `.tiktoken` file.

    Args:
        encoding_name: `cl100k_base` or `o200k_base`.
        ranks: A line for each token: base64, a space, its rank.

    Raises:
        KeyError: No such encoding is known.
        ImportError: tiktoken is not installed.
        ValueError: The ranks are no such table.
    """
    pattern = _PATTERNS[encoding_name]
    # Only here: nobody else needs it, and it is compiled code.
    import tiktoken

    table = {}
    for line in ranks.splitlines():
        if line:
            token, rank = line.split()
            table[base64.b64decode(token, validate=True)] = int(rank)
    encoding = tiktoken.Encoding(
        encoding_name, pat_str=pattern, mergeable_ranks=table, special_tokens={}
    )
    return BytePairs(encoding_name, encoding)

"""Counting tokens: the estimate is a bound, a count is a count, and nothing is fetched."""

import base64
import hashlib
import socket
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.evidence.pack import tables
from headroom.evidence.pack.tables import best_counter, read_ranks
from headroom.evidence.pack.token_words import RARE_PAIRS, SIGNS, TWO, WORDS
from headroom.evidence.pack.tokens import (
    ESTIMATE,
    TokenCounter,
    byte_pairs,
    corrected,
    learned_factor,
)

SAMPLE = Path(__file__).resolve().parents[2] / "golden" / "token_sample.md"
# What tiktoken 0.14.0 counts in the sample, which is parts of packs, a program, and some hard words.
COUNTED = {"o200k_base": 7572, "cl100k_base": 7593}


def counters() -> list[TokenCounter]:
    found = [best_counter(name) for name in COUNTED]
    if any(counter.estimated for counter in found):
        pytest.skip("the tables of the tokenizers are not on this machine (TIKTOKEN_CACHE_DIR)")
    return found


def tiny_ranks() -> bytes:
    """A made-up table: all bytes, and two words."""
    tokens = [bytes([one]) for one in range(256)] + [b"ab", b"abc"]
    lines = (base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens))
    return b"\n".join(lines) + b"\n"


def test_the_estimate_is_a_tight_bound_on_a_pack() -> None:
    estimated = ESTIMATE.count(SAMPLE.read_text(encoding="utf-8"))
    assert max(COUNTED.values()) <= estimated <= 1.25 * min(COUNTED.values())


def test_the_recorded_counts_are_tiktokens() -> None:
    for counter, counted in zip(counters(), COUNTED.values(), strict=True):
        assert counter.count(SAMPLE.read_text(encoding="utf-8")) == counted


WRITTEN = st.lists(
    st.one_of(
        st.sampled_from(sorted(WORDS | TWO | SIGNS | RARE_PAIRS)),
        st.sampled_from([" ", "\n", "  ", "_", ".", "\t", "é", "…", "`", "0", "12", "A", "'s"]),
        st.text(max_size=3),
        st.from_regex(r"[a-zA-Z_]{1,9}", fullmatch=True),
    ),
    max_size=30,
).map("".join)


@settings(deadline=None, max_examples=600)
@given(st.one_of(st.text(), WRITTEN))
def test_no_text_takes_more_than_estimated(text: str) -> None:
    for counter in counters():
        assert counter.count(text) <= ESTIMATE.count(text)


def test_the_tables_of_words_hold() -> None:
    for counter in counters():
        for words, tokens in ((WORDS, 1), (TWO, 2)):
            for word in words:
                assert counter.count(word) <= tokens, word
                assert counter.count(f" {word}") <= tokens, word
                for sign in string.punctuation:
                    assert counter.count(sign + word) <= tokens + 1, sign + word
        for run in SIGNS:
            assert counter.count(run) == 1
            assert counter.count(f"{run}\n") <= 2
        for letters in (string.ascii_lowercase, string.ascii_uppercase):
            for pair in (first + second for first in letters for second in letters):
                assert counter.count(pair) == 1 or pair in RARE_PAIRS


@settings(deadline=None)
@given(st.text(), st.text())
def test_lines_add_up(first: str, second: str) -> None:
    both = ESTIMATE.count(f"{first}\n{second}")
    assert both == ESTIMATE.count(first) + 1 + ESTIMATE.count(second)


def test_the_estimate_of_nothing_is_nothing() -> None:
    assert ESTIMATE.count("") == 0
    assert ESTIMATE.count("\ud800") == 3
    assert ESTIMATE.count("1234567") == 3
    assert ESTIMATE.count("allocated allocated") == 2
    # Two of three letters, and one more for the pair "qj", which is no token.
    assert ESTIMATE.count("vekuma") == 4
    assert ESTIMATE.count("vekaqj") == 5


def test_ranks_make_a_counter() -> None:
    counter = byte_pairs("cl100k_base", tiny_ranks())
    assert counter.count("abcab <|endoftext|>") == 2 + len(" <|endoftext|>")
    assert counter.name == "tiktoken cl100k_base"
    assert not counter.estimated
    with pytest.raises(KeyError):
        byte_pairs("gpt5", tiny_ranks())
    with pytest.raises(ValueError):
        byte_pairs("cl100k_base", b"not a table\n")


def test_a_correction_is_an_estimate_rounded_up() -> None:
    counter = byte_pairs("cl100k_base", tiny_ranks())
    twice = corrected(counter, 1.5)
    assert twice.count("xyz") == 5
    assert twice.estimated
    assert "1.500" in twice.name
    assert corrected(counter, 1.0) is counter
    for factor in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="positive"):
            corrected(counter, factor)


def test_the_factor_covers_the_worst_bill_seen() -> None:
    pairs = [(1000, 900), (2000, 2200), (500, 500)]
    factor = learned_factor(pairs)
    assert factor == 1.1
    assert all(estimated * factor >= billed for estimated, billed in pairs)
    assert learned_factor([]) == 1.0
    assert learned_factor([(0, 5), (5, 0)]) == 1.0


@pytest.fixture
def no_ranks(monkeypatch, tmp_path: Path) -> Path:
    """A machine with an empty cache and no package that carries a table."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "none"))
    monkeypatch.setattr(tables, "_CARRIERS", ())
    return tmp_path


def test_without_a_table_nothing_is_fetched(no_ranks: Path, monkeypatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert best_counter() is ESTIMATE
    assert list(no_ranks.iterdir()) == []


def test_a_table_in_the_cache_is_used_only_if_it_is_whole(no_ranks: Path, monkeypatch) -> None:
    data = tiny_ranks()
    name = "0123"
    monkeypatch.setattr(tables, "_FILES", {"cl100k_base": (name, hashlib.sha256(data).hexdigest())})
    (no_ranks / name).write_bytes(data[:-20])
    assert read_ranks("cl100k_base") is None
    assert best_counter("cl100k_base") is ESTIMATE
    (no_ranks / name).write_bytes(data)
    assert read_ranks("cl100k_base") == data
    assert best_counter("cl100k_base").count("abc") == 1

import pytest

from headroom.evidence.text import clean_line, clean_text, quoted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain name", "plain name"),
        ("naïve_größe_層", "naïve_größe_層"),
        ("a\nb\r\tc\x00\x1b[31m", "abc[31m"),
        ("\u202eevil\u2066\u200f\ufeff\u2028\u2029", "evil"),
        ("tag\U000e0041\U000e007f", "tag"),
        ("half \ud800 pair", "half  pair"),
        (None, ""),
        (7, ""),
    ],
)
def test_only_visible_characters_remain(text: object, expected: str) -> None:
    assert clean_text(text, 100) == expected


def test_long_text_is_cut_with_a_sign() -> None:
    assert clean_text("x" * 50, 10) == "x" * 9 + "…"
    assert clean_text("x" * 10, 10) == "x" * 10
    assert len(clean_text("\u202e" * 10**6 + "x", 10)) <= 10


def test_a_code_span_cannot_be_ended() -> None:
    assert quoted("a`b``\n# Title") == "`a'b''# Title`"


def test_source_lines_keep_their_columns_and_show_what_hides() -> None:
    assert clean_line("\tif x:", 80) == "    if x:"
    assert clean_line("a\u202eb\x1b", 80) == "a\ufffdb\ufffd"
    assert clean_line("y" * 100, 10) == "y" * 9 + "…"


@pytest.mark.parametrize("blank", ["\ufe0f", "\U000e0101", "\u3164", "\u2800", "\u180b", "\u034f"])
def test_letters_that_show_nothing_are_taken_out(blank: str) -> None:
    hidden = "".join(blank + letter for letter in "train.py")
    assert clean_text(hidden, 100) == "train.py"

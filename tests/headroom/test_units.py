import pytest

from headroom.units import GIB, MIB, format_bytes, format_seconds, parse_bytes, parse_percent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1048576", MIB),
        ("12GiB", 12 * GIB),
        ("0.5 GiB", GIB // 2),
        ("900MiB", 900 * MIB),
        ("80GB", 80 * 10**9),
        ("8g", 8 * GIB),
        (" 512 k ", 512 * 1024),
        ("3B", 3),
    ],
)
def test_sizes_are_read(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-5GiB", "12 parsecs", "1e3", "5%", "1,5GiB", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_bytes(text)


def test_percentages() -> None:
    assert parse_percent("60%") == 0.6
    assert parse_percent("12.5 %") == 0.125
    assert parse_percent("60") is None


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (5 * MIB, "5.00 MiB"),
        (int(7.25 * GIB), "7.25 GiB"),
    ],
)
def test_sizes_are_written(size_bytes: int, expected: str) -> None:
    assert format_bytes(size_bytes) == expected


def test_seconds_are_written() -> None:
    assert [format_seconds(s) for s in (0.0123, 0.5, 12.34, 150)] == [
        "12.30 ms",
        "500 ms",
        "12.3 s",
        "2 min 30 s",
    ]

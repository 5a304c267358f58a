from headroom.evidence.source import SourceWindow, source_windows

TEXT = "".join(f"line {number}\n" for number in range(1, 41))


def test_a_window_holds_the_line_with_its_neighbours() -> None:
    (window,) = source_windows({"a.py": TEXT}, {"a.py": [20]}, context=2)
    assert window == SourceWindow(
        path="a.py", first_line=18, lines=tuple(f"line {number}" for number in range(18, 23))
    )
    assert window.last_line == 22
    assert window.holds("a.py", 18)
    assert window.holds("a.py", 22)
    assert not window.holds("a.py", 23)
    assert not window.holds("b.py", 20)


def test_close_windows_become_one_and_distant_ones_do_not() -> None:
    # 8 to 12 and 15 to 19 leave out two lines, which is no more than the context.
    (one,) = source_windows({"a.py": TEXT}, {"a.py": [17, 10]}, context=2)
    assert (one.first_line, one.last_line) == (8, 19)
    two = source_windows({"a.py": TEXT}, {"a.py": [10, 18]}, context=2)
    assert [(window.first_line, window.last_line) for window in two] == [(8, 12), (16, 20)]


def test_the_ends_of_the_file_cut_the_window() -> None:
    first, last = source_windows({"a.py": TEXT}, {"a.py": {1, 40}}, context=3)
    assert (first.first_line, first.last_line) == (1, 4)
    assert (last.first_line, last.last_line) == (37, 40)


def test_lines_past_the_end_and_files_without_text_are_passed_over() -> None:
    assert source_windows({"a.py": TEXT}, {"a.py": [0, 41, -3], "b.py": [1]}) == ()
    assert source_windows({"a.py": ""}, {"a.py": [1]}) == ()


def test_only_pythons_line_ends_count() -> None:
    text = "one\r\ntwo\x0cstill two\u2028and still\rthree"
    (window,) = source_windows({"a.py": text}, {"a.py": [3]}, context=0)
    assert window.lines == ("three",)


def test_windows_come_in_order_of_path_and_line() -> None:
    windows = source_windows({"b.py": TEXT, "a.py": TEXT}, {"b.py": [30, 2], "a.py": [9]})
    assert [(window.path, window.first_line) for window in windows] == [
        ("a.py", 5),
        ("b.py", 1),
        ("b.py", 26),
    ]

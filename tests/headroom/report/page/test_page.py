import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from headroom.evidence.analysis_model import Analysis, Difference, LineChange
from headroom.report.page import PAGE_LIMIT_BYTES, render_page
from headroom.units import format_bytes
from tests.headroom.report.page.samples import (
    EVIL,
    NAMES,
    candidate,
    capture,
    cause,
    hostile,
    huge,
    with_device,
)

TAGS = {
    "html", "head", "meta", "link", "title", "style", "body", "a", "header", "div", "span", "svg", "rect", "path",
    "button", "main", "nav", "section", "h1", "h2", "h3", "p", "dl", "dt", "dd", "article", "details", "summary",
    "pre", "code", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "label", "input", "noscript", "footer",
    "script", "b",
}  # fmt: skip


class Page(HTMLParser):
    """Tags with attributes, text by tag, as a browser would read them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def text(self) -> str:
        shown = "".join(text for tag, text in self.texts if tag not in ("script", "style"))
        return re.sub(r"\s+", " ", shown)

    def of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]

    def data(self) -> Any:
        return json.loads(self.of("script")[0])


def page_of(analysis: Analysis, **more: Any) -> Page:
    return Page(render_page(analysis, title="some.pickle", **more))


@pytest.fixture(scope="module")
def attacked() -> str:
    of = cause(file=f"/srv/{EVIL}.py", text=EVIL)
    change = LineChange(
        file=f"/srv/{EVIL}.py",
        name=EVIL,
        before_line=1,
        after_line=None,
        before_bytes=5,
        after_bytes=3,
    )
    return render_page(
        hostile(),
        title=EVIL,
        causes=[of],
        candidates=[candidate(of, EVIL.replace("\n", ""))],
        sources={f"/srv/{EVIL}.py": f"{EVIL}\n" * 200},
        difference=Difference(before_bytes=5, after_bytes=3, changes=(change,)),
        next_command=f"headroom fix {EVIL}",
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_every_capture_is_small_and_its_sheets_close(name: str) -> None:
    analysis = capture(name)
    html = render_page(analysis, title=f"{name}.pickle")
    page = Page(html)
    assert len(html.encode()) < 400_000
    peak = analysis.main.ledger.peak.allocated_bytes
    assert f"Peak allocated{format_bytes(peak)}" in page.text().replace(" Peak", "Peak")
    assert f"{peak:,} bytes" in html
    closed = page.text().count("closes to the byte")
    assert closed == len(re.findall(r"entry [\d,]+ requested", page.text())) + 1 >= 2
    assert "off by" not in page.text()


def test_a_sheet_that_does_not_close_says_by_how_much() -> None:
    full = capture("full")
    ledger = full.main.ledger
    assert ledger.balance is not None
    wrong = replace(ledger.balance, cached_bytes=ledger.balance.cached_bytes - 512)
    assert "off by -512 bytes" in page_of(with_device(full, balance=wrong)).text()


def test_no_text_of_a_snapshot_becomes_markup(attacked: str) -> None:
    page = Page(attacked)
    assert {tag for tag, _ in page.tags} <= TAGS
    assert sum(tag == "script" for tag, _ in page.tags) == 2
    for _, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "srcset", "srcdoc", "action", "style")
            assert name != "href" or (value or "").startswith(("#", "data:,"))
    # The attack is told as it is: visible characters, and nothing that turns or hides text.
    assert "<img src=x onerror=alert(2)>" in page.text()
    assert "{{7*7}}" in page.text()
    assert not re.search("[\u202e\u2028\x1b\u2066-\u2069]", attacked)


def test_data_in_the_script_element_cannot_end_it(attacked: str) -> None:
    raw = re.search(r'<script type="application/json" id="data">(.*?)</script>', attacked, re.S)
    assert raw is not None
    assert not set("<>&\u2028\u2029") & set(raw[1])
    frames = json.loads(raw[1])["views"][0]["frames"]
    assert any("</script><script>alert(1)" in name for _, name, _ in frames)


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(attacked: str) -> None:
    page = Page(attacked)
    policies = [
        attributes["content"] or ""
        for tag, attributes in page.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policies[0].split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for name, tag, place in (("script-src", "script", 1), ("style-src", "style", 0)):
        digest = hashlib.sha256("".join(page.of(tag)[place:]).encode()).digest()
        assert rules[name] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert "unsafe" not in policies[0]
    assert "url(" not in "".join(page.of("style"))
    assert "sourceMappingURL" not in attacked


def test_no_page_is_larger_than_the_limit_and_it_says_what_is_missing() -> None:
    html = render_page(
        huge(),
        title="𝔗" * 5000,
        causes=[cause(text="𝔘" * 5000)] * 50,
        next_command="𝔑" * 5000,
    )
    assert len(html.encode()) <= PAGE_LIMIT_BYTES
    page = Page(html)
    assert re.search(r"[\d,]+ of 500 stacks of device 0 are shown", page.text())
    assert re.search(r"\d+ of 12 devices are shown", page.text())
    assert re.search(r"[\d,]+ smaller stacks, not listed", page.text())


def test_a_page_is_cut_where_its_text_and_not_its_data_is_large() -> None:
    long = "𝔘" * 400
    causes = [cause(text=f"cause {number}") for number in range(12)]
    drafts = [candidate(one) for one in causes]
    edits = [
        replaced.model_copy(update={"new_lines": (*replaced.new_lines, *[long] * 200)})
        for replaced in (draft.patch.edits[0] for draft in drafts)
    ]
    drafts = [
        draft.model_copy(update={"patch": draft.patch.model_copy(update={"edits": (edit,)})})
        for draft, edit in zip(drafts, edits, strict=True)
    ]
    html = render_page(capture("full"), title="x", causes=causes, candidates=drafts)
    assert len(html.encode()) <= PAGE_LIMIT_BYTES
    assert "lines of the draft for evaluation_with_graph are shown" in Page(html).text()


def test_two_devices_have_tabs_and_one_has_none() -> None:
    one = capture("full")
    assert not any(attributes.get("role") == "tab" for _, attributes in page_of(one).tags)
    second = replace(one.devices[0], ledger=replace(one.devices[0].ledger, device=3))
    both = page_of(replace(one, devices=(one.devices[0], second)))
    assert sum(attributes.get("role") == "tab" for _, attributes in both.tags) == 2
    assert {"d0", "d3"} <= {attributes.get("id") for _, attributes in both.tags}


def test_a_snapshot_without_a_device_still_gives_a_page() -> None:
    empty = replace(capture("full"), devices=())
    assert "no device with memory" in page_of(empty).text()


def test_diagnoses_are_unverified_and_show_their_draft() -> None:
    of = cause()
    page = page_of(
        capture("full"),
        causes=[of],
        candidates=[candidate(of)],
        next_command="headroom fix train.py",
    )
    text = page.text()
    assert "Diagnoses unverified" in text
    assert "Evaluation with graph" in text
    assert "100.00 MiB 17 % of the peak" in text
    assert "+    with torch.no_grad():" in "".join(page.of("span"))
    assert "headroom fix train.py" in text
    bare = page_of(capture("full"), next_command="headroom analyze some.pickle --source .").text()
    assert "Diagnoses" not in bare
    assert "Next: headroom analyze some.pickle --source ." in bare


def test_differences_are_told_by_line() -> None:
    changes = (
        LineChange(file="/a/train.py", name="f", before_line=3, after_line=9, before_bytes=2**30, after_bytes=0),
        LineChange(file="/a/train.py", name="g", before_line=None, after_line=12, before_bytes=0, after_bytes=2**20),
    )  # fmt: skip
    difference = Difference(before_bytes=3 * 2**30, after_bytes=2**31, changes=changes)
    text = page_of(capture("full"), difference=difference).text()
    assert "went from 3.00 GiB to 2.00 GiB: 1.00 GiB saved" in text
    assert "was line 3" in text
    assert "−1.00 GiB" in text
    assert "+1.00 MiB" in text


def test_bytes_without_an_owner_say_why_and_add_up_to_the_peak() -> None:
    page = page_of(capture("late_start"))
    ledger = capture("late_start").main.ledger
    listed = re.findall(r"without an owner: ([a-z ]+?) ?[\d.]+ MiB", page.text())
    assert set(listed) == set(ledger.unattributed)
    assert "record from the program's first line" in page.text()
    assert "does not reach back to the first allocation" in page.text()


def test_inferred_categories_are_marked() -> None:
    full = capture("full")
    blocks = tuple(replace(block, inferred=False) for block in full.main.ledger.blocks)
    shares = tuple(replace(share, inferred_bytes=0) for share in full.main.composition.categories)
    certain = with_device(
        full, blocks=blocks, composition=replace(full.main.composition, categories=shares)
    )

    def marks(analysis: Analysis) -> int:
        return sum(
            attributes.get("class") == "inferred" for _, attributes in page_of(analysis).tags
        )

    # One mark is in the note that explains it.
    assert marks(certain) == 1
    assert marks(full) > len(full.main.ledger.stacks)


def test_the_licence_of_the_chart_library_goes_with_each_copy() -> None:
    html = render_page(capture("streams"), title="x")
    assert "Copyright (c) 2022 Leon Sorokin" in html
    assert "permission notice shall be included" in html


def test_the_same_analysis_gives_the_same_page() -> None:
    assert render_page(capture("full"), title="x") == render_page(capture("full"), title="x")

"""The page in a real browser: nothing runs, asks or breaks, and its parts do what they are for."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headroom.report.page import render_page
from tests.headroom.report.page import chromium
from tests.headroom.report.page.chromium import Chromium
from tests.headroom.report.page.samples import EVIL, candidate, capture, cause, hostile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.PATH is None, reason="no Chromium: apt-get install chromium"),
]
OVER = "document.querySelector('.device:not([hidden]) .chart .u-over').getBoundingClientRect()"
TIP = "document.querySelector('.tip').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    opened = Chromium(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def show(browser: Chromium, tmp_path: Path) -> Iterator[Any]:
    browser.complaints.clear()

    def open_page(html: str, **how: Any) -> Chromium:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        browser.open(path, **how)
        return browser

    yield open_page
    assert browser.complaints == []


def chart_at(browser: Chromium, across: float, down: float) -> tuple[float, float]:
    browser.run("document.querySelector('.chart').scrollIntoView({block: 'center'})")
    browser.settle()
    box = browser.run(
        f"(() => {{ const b = {OVER}; return [b.left, b.top, b.width, b.height]; }})()"
    )
    return box[0] + box[2] * across, box[1] + box[3] * down


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1600])
def test_a_page_of_attacks_runs_nothing_asks_nothing_and_fits(
    show: Any, dark: bool, width: int
) -> None:
    of = cause(file=f"/srv/{EVIL}.py", text=EVIL)
    html = render_page(
        hostile(), title=EVIL, causes=[of], candidates=[candidate(of)],
        sources={f"/srv/{EVIL}.py": f"{EVIL}\n" * 99}, next_command=EVIL,
    )  # fmt: skip
    browser = show(html, dark=dark, width=width)
    browser.run(
        "document.querySelectorAll('.device:not([hidden]) .open').forEach((one) => one.click())"
    )
    browser.run("document.querySelectorAll('.link').forEach((one) => one.click())")
    browser.run("document.querySelectorAll('[role=tab]')[1].click()")
    browser.mouse("mouseMoved", *chart_at(browser, 0.5, 0.9))
    browser.settle()
    assert browser.run("document.querySelectorAll('img, iframe, object, embed').length") == 0
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_a_policy_stops_what_would_slip_in(browser: Chromium, tmp_path: Path) -> None:
    html = render_page(capture("full"), title="full")
    planted = html.replace(
        "</main>", "</main><img src=x onerror='document.title = 1'><script>alert(1)</script>"
    )
    path = tmp_path / "planted.html"
    path.write_text(planted)
    browser.complaints.clear()
    browser.open(path)
    assert browser.run("document.title") == "full · Headroom"
    assert not any("DialogOpening" in one for one in browser.complaints)
    assert any("Content Security Policy" in one for one in browser.complaints)


def test_hovering_names_the_layer_and_a_click_opens_its_stack(show: Any) -> None:
    browser = show(render_page(capture("eval_leak"), title="eval_leak"))
    assert browser.run("document.querySelector('.tip').hidden")
    browser.mouse("mouseMoved", *chart_at(browser, 0.97, 0.95))
    browser.wait("!document.querySelector('.tip').hidden")
    told = browser.run(TIP)
    assert re.search(
        r"capture\.py:13 forward.*MiB.*activation.*bytes.*allocated.*GiB.*reserved.*entry", told
    )
    browser.click(*chart_at(browser, 0.97, 0.95))
    browser.wait("document.activeElement.className == 'open'")
    assert browser.run("document.activeElement.closest('tr').id") == "d0-S001"
    assert browser.run("document.querySelector('.open').getAttribute('aria-expanded')") == "true"
    assert "× " in browser.run("document.querySelector('#d0-S001-more').textContent")


def test_dragging_zooms_and_the_button_resets(show: Any) -> None:
    browser = show(render_page(capture("full"), title="full"))
    zoomed = "!document.querySelector('.reset').disabled"
    assert not browser.run(zoomed)
    x, y = chart_at(browser, 0.3, 0.5)
    browser.drag(x, y, x + 200)
    browser.wait(zoomed)
    browser.run("document.querySelector('.reset').click()")
    browser.wait(f"!({zoomed})")


def test_the_chart_is_usable_from_the_keyboard(show: Any) -> None:
    browser = show(render_page(capture("full"), title="full"))
    browser.run("document.querySelector('.chart').focus()")
    for key in ("Home", "ArrowUp"):
        browser.press(key)
    first = browser.run(TIP)
    assert "entry1,192" in first
    browser.press("ArrowUp")
    assert browser.run(TIP) != first
    browser.press("+")
    browser.wait("!document.querySelector('.reset').disabled")
    browser.press("Enter")
    browser.wait("document.activeElement.className == 'open'")


def test_the_table_sorts_filters_and_adds_up(show: Any) -> None:
    browser = show(render_page(capture("full"), title="full"))
    column = "[...document.querySelectorAll('tr.stack:not([hidden])')].map((r) => Number(r.cells[{}].dataset.v))"
    by_bytes = browser.run(column.format(1))
    assert by_bytes == sorted(by_bytes, reverse=True)
    browser.run("document.querySelector('.rows th.c-blocks button').click()")
    by_blocks = browser.run(column.format(4))
    assert by_blocks == sorted(by_blocks, reverse=True)
    browser.run(
        "{ const i = document.querySelector('.filter input'); i.value = 'adam'; i.dispatchEvent(new Event('input')); }"
    )
    assert browser.run("document.querySelector('.found').textContent") == "2 stacks, 40.14 MiB"
    assert browser.run(column.format(1)) == [21_043_200, 21_043_200]


def test_composition_switches_and_exact_bytes_show_everywhere(show: Any) -> None:
    browser = show(render_page(capture("full"), title="full"))
    shown = (
        "[...document.querySelectorAll('.parts:not([hidden]) h3')].map((head) => head.textContent)"
    )
    assert browser.run(shown) == ["By category"]
    browser.run("document.querySelectorAll('.composition .seg button')[1].click()")
    assert browser.run(shown) == ["By phase"]
    browser.run("document.getElementById('exact').click()")
    assert browser.run("document.querySelector('.stats dd').textContent") == "618,434,048 bytes"
    assert browser.run("document.querySelector('.stats .b').title") == "589.78 MiB"


def test_tabs_switch_devices_and_a_chart_that_was_hidden_is_drawn(show: Any) -> None:
    one = capture("full").devices[0]
    two = replace(one, ledger=replace(one.ledger, device=1))
    browser = show(render_page(replace(capture("full"), devices=(one, two)), title="two"))
    assert browser.run("document.getElementById('d1').hidden")
    browser.run("document.querySelectorAll('[role=tab]')[1].click()")
    browser.settle()
    assert browser.run(
        "document.getElementById('d0').hidden && !document.getElementById('d1').hidden"
    )
    assert browser.run("document.querySelector('#d1 .chart canvas').width") > 300


def test_printing_is_light_and_shows_every_part(show: Any) -> None:
    browser = show(render_page(capture("full"), title="full"), dark=True)
    paper = "getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()"
    assert browser.run(paper) == "#14171b"
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run(paper) == "#fbfbfa"
    assert len(browser.call("Page.printToPDF")["data"]) > 20_000

"""The page in a browser: Debian's Chromium, driven by Playwright."""

import os
import shutil
from pathlib import Path

import pytest

from urnn.report import page as report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("plotly")
pytest.importorskip("jinja2")
ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path, and CHROMIUM does not name one")
DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}
CURVES = "[data-figure=curves]"


@pytest.fixture(scope="module")
def url(runs, tmp_path_factory):
    folders = [ROOT / "results", ROOT / "benchmarks" / "results", runs]
    return report.write(folders, tmp_path_factory.mktemp("page") / "report.html", [2, 3, 4]).as_uri()


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"]
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, url):
    """Open the page; afterwards nothing may have been said on the console, and nothing asked for."""
    opened, said = [], []

    def open_page(viewport=DESKTOP, scheme="light"):
        page = chromium.new_page(viewport=viewport, color_scheme=scheme)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if not request.url.startswith("data:") else None)
        page.goto(url)
        page.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()
    assert [text for text in said if text != url] == []


def shown(page):
    """The meta of the curves that are drawn."""
    return [meta for meta in page.evaluate(f"document.querySelector('{CURVES}').data.map(t => t.meta)") if meta]


def test_every_chart_is_drawn(visit):
    page = visit()
    drawn = page.evaluate("[...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('.main-svg').length)")
    assert len(drawn) == 7
    assert all(drawn)
    assert page.evaluate("window.hacked") is None
    buttons = page.evaluate("[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)")
    assert "Download plot as a PNG" in buttons
    assert not [
        title for title in buttons if any(word in title.lower() for word in ("share", "cloud", "edit", "plotly"))
    ]


def test_filters_leave_what_was_asked_for(visit):
    page = visit()
    panel = page.locator("#learning")
    panel.locator("[data-key=task]").select_option("sysid")
    panel.locator("[data-key=size]").select_option("N = 8")
    assert {(m["task"], m["size"]) for m in shown(page)} == {("sysid", "N = 8")}
    many = len(shown(page))
    panel.locator("[data-key=model]").select_option("givens-4")
    assert {m["model"] for m in shown(page)} == {"givens-4"}
    assert len(shown(page)) < many
    panel.locator("[data-key=model]").select_option("")
    panel.locator("[data-search]").fill("householder-6")
    assert [m["model"] for m in shown(page)] == ["householder-6"]
    panel.locator("[data-search]").fill("no such run")
    assert panel.locator(".empty").is_visible()


def test_a_filter_offers_only_what_there_is(visit):
    page = visit()
    page.locator("#learning [data-key=task]").select_option("sysid")
    offered = page.locator("#learning [data-key=size] option:not([disabled])").all_text_contents()
    assert offered
    assert all(text.startswith("N = ") for text in offered)
    assert shown(page)


def test_seeds_or_their_band(visit):
    page = visit()
    page.locator("#learning [data-key=size]").select_option("T = 4")
    assert sum(m["kind"] == "seed" for m in shown(page)) == 4
    page.locator("#learning [data-key=kind]").select_option("band")
    assert {m["kind"] for m in shown(page)} == {"band", "both"}
    assert sum(bool(m.get("edge")) for m in shown(page)) == 4


def test_log_scale_and_smoothing(visit):
    page = visit()
    scale = f"document.querySelector('{CURVES}')._fullLayout.yaxis.type"
    wiggle = f"""(() => {{ const y = document.querySelector('{CURVES}').data[1].y;
        return y.slice(1).reduce((sum, v, i) => sum + Math.abs(v - y[i]), 0) }})()"""
    assert page.evaluate(scale) == "log"
    page.locator("[data-log]").uncheck()
    assert page.evaluate(scale) == "linear"
    rough = page.evaluate(wiggle)
    page.locator("[data-smooth]").fill("11")
    assert page.locator("#learning output").inner_text() == "11"
    assert page.evaluate(wiggle) < rough / 2


def test_a_curve_answers_the_mouse(visit):
    page = visit()
    x, y = page.evaluate(
        f"""(() => {{
            const chart = document.querySelector('{CURVES}');
            chart.scrollIntoView({{ block: "center" }});
            const {{ xaxis, yaxis }} = chart._fullLayout, box = chart.getBoundingClientRect(), line = chart.data[0];
            const i = Math.floor(line.x.length / 2);
            return [box.x + xaxis._offset + xaxis.d2p(line.x[i]), box.y + yaxis._offset + yaxis.d2p(line.y[i])];
        }})()"""
    )
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y, steps=3)
    label = page.locator(f"{CURVES} .hovertext").first
    label.wait_for(timeout=5000)
    assert "iteration" in label.text_content()


def colours(page):
    return page.evaluate(
        f"""[getComputedStyle(document.body).backgroundColor,
            document.querySelector('{CURVES}')._fullLayout.font.color]"""
    )


def test_dark_and_light_by_system_and_by_keyboard(visit):
    light, dark = colours(visit()), None
    page = visit(scheme="dark")
    dark = colours(page)
    assert light[0] == "rgb(255, 255, 255)"
    assert all(a != b for a, b in zip(light, dark, strict=True))
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert colours(page) == light
    page.keyboard.press("Enter")
    assert colours(page) == dark


def test_the_keyboard_reaches_everything(visit):
    page = visit()
    reached = set()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(e => e.id || e.dataset.key || Object.keys(e.dataset)[0] || e.tagName)(document.activeElement)"
            )
        )
    assert {"theme", "task", "size", "model", "recipe", "search", "kind", "smooth", "log", "run", "shape"} <= reached
    page.locator("#learning [data-key=task]").focus()
    before = shown(page)
    page.keyboard.press("ArrowDown")
    assert shown(page) != before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_does_not_scroll_sideways(visit, scheme):
    page = visit(PHONE, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    widths = page.evaluate("[...document.querySelectorAll('.chart')].map(c => c.getBoundingClientRect().right)")
    assert max(widths) <= PHONE["width"]


def test_audio_plays(visit):
    page = visit()
    played = page.evaluate(
        """() => {
            const audio = document.querySelector("audio");
            audio.play();
            return new Promise((done) => audio.addEventListener("ended", () => done(audio.currentTime)));
        }"""
    )
    assert played == pytest.approx(1.0, abs=0.05)
    assert page.evaluate("document.querySelector('#speech img').naturalWidth") == 40


def test_a_command_line_is_copied(visit):
    page = visit()
    page.locator("[data-copy]").first.click()
    playwright.expect(page.locator("#status")).to_have_text("Copied")

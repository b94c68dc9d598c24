"""The page is complete in itself, and prints every name as text."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from urnn.cli import app
from urnn.report import page

pytest.importorskip("plotly")
pytest.importorskip("jinja2")
ROOT = Path(__file__).parents[2]
SHIPPED = [ROOT / "results", ROOT / "benchmarks" / "results"]


class Elements(HTMLParser):
    """Elements with their attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs), []))

    def handle_data(self, data):
        self.found[-1][2].append(data) if self.found else None

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, "".join(texts)) for name, attributes, texts in self.found if name == tag]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    return page.write(SHIPPED, tmp_path_factory.mktemp("page") / "report.html", [2, 3])


def test_the_shipped_page_is_whole_and_small(shipped):
    assert shipped.stat().st_size < 5_000_000
    found = Elements(shipped.read_text())
    for _, attributes, _ in found.found:
        for name in ("src", "href"):
            assert re.match("#|data:", attributes.get(name) or "#"), attributes
    (policy,) = (a["content"] for a, _ in found.of("meta") if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert not re.findall(r"url\(|@import", "".join(text for _, text in found.of("style")))
    ids = [a["id"] for _, a, _ in found.found if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for a, _ in found.of("a")} <= set(ids)
    assert {"compared", "learning", "capacity", "unitarity", "speed", "tables", "runs"} <= set(ids)


def test_its_controls_have_labels_and_its_charts_too(shipped):
    text = shipped.read_text()
    assert len(re.findall(r"<(?:select|input)\b", text)) == len(re.findall(r"<label\b", text)) > 8
    charts = [a for _, a, _ in Elements(text).found if "data-figure" in a]
    assert all(a["role"] == "img" and a["aria-label"] for a in charts)


def test_the_same_files_make_the_same_page(shipped, tmp_path):
    assert page.write(SHIPPED, tmp_path / "again.html", [2, 3]).read_bytes() == shipped.read_bytes()


def test_a_hostile_name_is_text(runs, hostile, tmp_path):
    text = page.write([runs], tmp_path / "report.html", []).read_text()
    found = Elements(text)
    assert len(found.of("script")) == 3
    assert all((a["src"] or "").startswith("data:image/png") for a, _ in found.of("img"))
    assert all(not name.startswith("on") for _, attributes, _ in found.found for name in attributes)
    assert hostile in [text.strip() for _, text in found.of("th")]
    assert any(hostile in (a.get("aria-label") or "") for a, _ in found.of("audio"))
    (figures,) = (json.loads(text) for a, text in found.of("script") if a.get("id") == "figures")
    (line,) = (t for t in figures["curves"]["data"] if t["meta"].get("name") == hostile and t["meta"]["kind"] == "seed")
    assert "<img" not in line["hovertemplate"]
    assert "&lt;img" in line["hovertemplate"]


def test_sections_without_content_are_left_out(runs, tmp_path):
    found = Elements(page.write([runs / "lstm"], tmp_path / "report.html", []).read_text())
    assert [a["id"] for a, _ in found.of("section")] == ["learning", "runs"]


def test_what_is_not_finite_is_null():
    assert page._json({"a": [float("nan"), float("inf"), 1.0], "b": "</script>"}) == (
        '{"a":[null,null,1.0],"b":"\\u003c/script>"}'
    )


@pytest.mark.parametrize("missing", page.NEEDED)
def test_a_missing_library_is_named_with_its_cure(monkeypatch, tmp_path, missing):
    monkeypatch.setattr(page, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(NotImplementedError, match=rf"found no {missing}\. `pip install 'urnn\[report\]'`"):
        page.write(SHIPPED, tmp_path / "report.html", [])


def test_the_command_says_where_the_page_is(runs, tmp_path):
    out = tmp_path / "new" / "report.html"
    result = CliRunner().invoke(app, ["report", str(runs), "-o", str(out), "--n", "0"])
    assert result.exit_code == 0, result.output
    assert f"Report: {out} (" in result.output


def test_why_there_are_no_eigenvalues_is_said(small_run, tmp_path):
    folder = small_run(tmp_path / "<run>", "copy")
    for path in (folder.path / "checkpoint").iterdir():
        path.write_bytes(b"none")
    text = page.write([folder.path], tmp_path / "report.html", []).read_text()
    assert "&lt;run&gt;: no eigenvalues: " in text

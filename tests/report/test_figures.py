"""Figures hold the figures, and can be told apart."""

import json
from pathlib import Path

import pytest

from urnn.capacity.report import shares
from urnn.report import charts, curves, tables
from urnn.report.gather import gather

plotly = pytest.importorskip("plotly")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found():
    return gather([ROOT / "results", ROOT / "benchmarks" / "results"])


def test_there_is_a_line_for_each_run_and_a_band_for_each_setting(runs):
    found = gather([runs]).runs
    traces = curves.learning(found).data
    seeds = [trace for trace in traces if trace.meta["kind"] == "seed"]
    assert [list(trace.y) for trace in seeds] == [run["losses"] for run in found]
    bands = [trace for trace in traces if trace.meta["kind"] == "band" and not trace.meta.get("edge")]
    assert len(bands) == len({run["group"] for run in found}) == 3
    (middle,) = (trace for trace in bands if "median of 3 seeds" in trace.hovertemplate)
    losses = sorted(run["losses"][0] for run in found if run["group"].startswith("copy, full"))
    assert middle.y[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_band_interpolates_and_ends_where_its_runs_end():
    runs = [{"iterations": [0, 10], "losses": [1.0, 3.0]}, {"iterations": [0, 5, 20], "losses": [4.0, 4.0, 1.0]}]
    assert curves.band(runs) == ([0, 5, 10, 20], [1.0, 2.0, 3.0, 1.0], [2.5, 3.0, 3.0, 1.0], [4.0, 4.0, 3.0, 1.0])


def test_lines_that_are_shown_together_differ_without_colour(found):
    places = {}
    for trace in curves.learning(found.runs).data:
        if trace.meta["kind"] == "seed":
            key = trace.meta["task"], trace.meta["size"], trace.line.color, trace.line.dash
            places.setdefault(key, set()).add(trace.meta["model"])
    assert all(len(models) == 1 for models in places.values())


def luminance(color: str) -> float:
    """Of sRGB, as WCAG 2 defines it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("color", curves.PALETTE)
@pytest.mark.parametrize("ground", ["#ffffff", "#14171a"])
def test_every_colour_stands_out_from_both_grounds(color, ground):
    assert f"--ground: {ground}" in (ROOT / "urnn" / "report" / "templates" / "style.css").read_text()
    light, dark = sorted([luminance(color), luminance(ground)], reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3


def test_capacity_is_the_rank():
    assert shares([4, 6], "restricted", {}) == [(4, 1.0), (6, 35 / 36)]
    (trace,) = charts.capacity([("<b>x", shares([4, 6], "restricted", {}))]).data
    assert (trace.x, trace.y, trace.name) == ((4, 6), (1.0, 35 / 36), "&lt;b&gt;x")


def test_error_over_rank_is_that_of_the_file(found):
    rows = found.grids["capacity", "best"]
    figure = charts.error_over_rank(rows)
    assert sum(len(trace.x) for trace in figure.data) == len(rows)
    (row,) = (row for row in rows if row["preset"] == "capacity-N16/givens-8")
    (trace,) = (t for t in figure.data if t.name == "givens" and t.meta["size"] == "N = 16")
    place = trace.text.index("givens-8")
    spread = row["result"]["normalized_mse"]["haar/givens"]["best validation"]
    assert (trace.x[place], trace.y[place]) == (row["result"]["rank"]["givens"] / 256, spread["median"])
    assert trace.y[place] + trace.error_y.array[place] == pytest.approx(spread["worst"])


def test_speed_is_the_ratio_of_the_file(found):
    for trace in charts.speed(found.benchmarks).data:
        for model, length, (ratio, ms) in zip(trace.y, trace.x, trace.customdata, strict=True):
            assert trace.base + length == pytest.approx(ratio)
            (row,) = (
                row
                for row in found.benchmarks
                if (row["model"], row["shape"], charts.machine(row), row["series"])
                == (model, trace.meta["shape"], trace.meta["machine"], "")
            )
            assert (float(row["ratio"]), float(row["ms_50"])) == (ratio, ms)


def test_the_paper_is_compared_by_its_own_rule(found):
    (one,) = (one for one in tables.compared(found.grids) if one["title"].startswith("Table 1"))
    assert len(one["rows"]) == 20 * sum(grid == "table1" for grid, _ in found.grids)
    (row,) = (row for row in one["rows"] if (row["what"], row["recipe"]) == ("W_g, full, N = 16", "best"))
    content = json.loads((ROOT / "results" / "table1-best.json").read_text())["runs"]
    (run,) = (run for run in content if run["preset"] == "sysid-N16")
    ours = run["result"]["normalized_mse"]["Wg/full"]["lowest test"]
    assert row["paper"] == "1.00e-06"
    assert row["ours"] == f"{ours['best']:.2e}"
    assert row["count"] == f"{len(ours['all'])} starts"
    assert row["better"] == ("ours" if ours["best"] < 1e-6 else "paper")


def test_the_better_one_is_marked_whoever_it_is():
    assert tables.row("", "", "", "", "", (1.0, 2.0))["better"] == "paper"
    assert tables.row("", "", "", "", "", (2.0, 1.0))["better"] == "ours"
    assert tables.row("", "", "", "", "", (1.0, 1.0))["better"] == ""


def test_iterations_to_solve_are_a_median_over_all_seeds():
    rows = [{"preset": "copy-T1000/full-128", "result": {"solved_at": at}} for at in (300, None, 200)]
    (one,) = tables.compared({("figure1", "best"): rows})
    assert one["rows"] == [tables.row("T = 1000, full-128", "best", "about 2000", "300", "3 seeds", (2000, 300))]
    rows[0]["result"]["solved_at"] = None
    (one,) = tables.compared({("figure1", "best"): rows})
    assert (one["rows"][0]["ours"], one["rows"][0]["better"]) == ("not solved", "paper")


def test_accuracies_are_better_where_they_are_higher():
    shares = [("mnist/full-116", 0.95), ("mnist/full-116", 0.93), ("mnist/lstm-128", 0.97)]
    rows = [{"preset": preset, "result": {"test_accuracy": share}} for preset, share in shares]
    (one,) = tables.compared({("table3", "best"): rows})
    found = {row["what"]: (row["paper"], row["ours"], row["count"], row["better"]) for row in one["rows"]}
    assert found == {
        "mnist/full-116": ("92.8", "94.00", "2 seeds", "ours"),
        "mnist/lstm-128": ("97.8", "97.00", "1 seed", "paper"),
    }


def test_pages_of_results_become_data():
    markdown = ["Text with `code`.", "| a | b |\n| --- | --- |\n| `1` | <2> |", "![x](y.png)", "- one [f](../f)\n- two"]
    assert tables.blocks(markdown) == [
        {"text": "Text with code."},
        {"header": ["a", "b"], "lines": [["1", "<2>"]]},
        {"text": "one f two"},
    ]

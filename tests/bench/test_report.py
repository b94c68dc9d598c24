"""The page of benchmarks is that of the files, and its pictures are too."""

import re
from pathlib import Path

import pytest
from PIL import Image

from urnn.bench import figures, report
from urnn.bench.tables import COLUMNS, csv_file, read_csv

ROOT = Path(__file__).parent.parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks.md"
COMMITTED = [row for path in sorted(RESULTS.glob("*.csv")) for row in read_csv(path)]


def source(path: Path) -> str:
    """The digest of the rows that a picture was drawn from."""
    with Image.open(path) as image:
        return str(image.info["Source"])


def gpu_rows() -> list[dict[str, object]]:
    """What a GPU gives, with made-up figures: two precisions, memory, a reason, a failure, a series."""
    common = dict.fromkeys(COLUMNS, "") | {"device": "gpu", "machine": "NVIDIA X", "threads": 4, "dtype": "float32"}
    common |= {"torch": "2.11", "triton": "3.6", "commit": "abc", "T": 8, "B": 4, "N": 2, "M": 1, "shape": "tiny"}

    def timed(model, ms, **others):
        return common | {"model": model, "ms_20": ms, "ms_50": ms, "ms_80": ms, "ratio": ms / 2} | others

    rows = [
        timed(model, ms, precision=precision, peak_mib=3.0)
        for precision in ("float32", "tf32")
        for model, ms in (("UnitaryRNN, cpu", 1.0), ("nn.RNN", 2.0), ("nn.GRU", 3.0))
    ]
    rows += [common | {"model": "complextorch.UnitaryRNN", "precision": "float32", "note": "a loop"}]
    rows += [common | {"model": "all", "shape": "large", "note": "left out"}]
    rows += [timed("nn.RNN", T / 8, precision="float32", series="T", T=T, shape=f"T = {T}") for T in (8, 16)]
    return rows


def write(folder: Path, name: str, rows: list[dict[str, object]]) -> None:
    with csv_file(folder / name) as add:
        add(rows)


def test_the_page_is_that_of_the_files():
    assert PAGE.read_text() == report.text(COMMITTED, "../benchmarks/results")


def test_the_pictures_are_those_of_the_files(tmp_path):
    drawn = report.pictures(COMMITTED)
    assert drawn
    for name, draw in drawn.items():
        committed = PAGE.parent / "images" / name
        draw(tmp_path / name)
        assert source(committed) == source(tmp_path / name)
        assert committed.stat().st_size < 60_000
    assert {path.name for path in (PAGE.parent / "images").glob("bench-*.png")} == set(drawn)


def test_another_figure_gives_another_picture(tmp_path):
    rows = gpu_rows()[:3]
    for name, ratio in (("a.png", 1.0), ("b.png", 3.0)):
        figures.ratios(tmp_path / name, [rows[0] | {"ratio": ratio}, *rows[1:]], "nn.RNN")
    assert source(tmp_path / "a.png") != source(tmp_path / "b.png")
    with Image.open(tmp_path / "a.png") as first, Image.open(tmp_path / "b.png") as second:
        assert first.tobytes() != second.tobytes()


def test_a_gpu_has_a_table_for_each_precision_and_its_memory(tmp_path):
    write(tmp_path / "results", "gpu.csv", gpu_rows())
    written = report.write(tmp_path / "results", tmp_path / "docs" / "page.md")
    page = written[0].read_text()
    assert [path.name for path in written[1:]] == [
        "bench-gpu-nvidia-x-float32.png",
        "bench-gpu-nvidia-x-tf32.png",
        "bench-gpu-nvidia-x-scaling.png",
    ]
    for name in re.findall(r"!\[.*?\]\((.*?)\)", page):
        assert (tmp_path / "docs" / name).exists()
    assert "[benchmarks/results](../results)" in page
    assert re.findall(r"^#+ .*", page, re.MULTILINE) == [
        "# Benchmarks",
        "## GPU: NVIDIA X",
        "### float32",
        "### TF32",
        "### Over T, B and N",
    ]
    assert "torch 2.11; triton 3.6; commit abc" in page
    assert "Base: `nn.RNN` of equal N." in page
    assert page.count("| UnitaryRNN, cpu | 1.00 (0.50) |") == 2
    assert page.count("| UnitaryRNN, cpu | 3.0 |") == 2
    assert "- not timed: `complextorch.UnitaryRNN`: a loop\n" in page
    assert "- not timed: all models (large): left out\n" in page
    assert "| T = 8 to 16 | B = 4, N = 2, M = 1 | nn.RNN | 1.00 |" in page


def test_runs_of_one_device_share_a_section(tmp_path):
    rows = gpu_rows()
    write(tmp_path, "gpu-1.csv", rows[:3])
    write(tmp_path, "gpu-2.csv", [row | {"shape": "other", "commit": "def"} for row in rows[:3]])
    (tmp_path / "other.csv").write_text("step,ms\nadam,1\n")
    page = report.write(tmp_path, tmp_path / "page.md")[0].read_text()
    assert page.count("## GPU") == 1
    assert "commit abc, def" in page
    assert "| UnitaryRNN, cpu | 1.00 (0.50) | 1.00 (0.50) |" in page


def test_a_folder_without_results_is_named(tmp_path):
    with pytest.raises(ValueError, match="--results: expected a folder with files of"):
        report.write(tmp_path, tmp_path / "page.md")

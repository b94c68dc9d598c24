"""Documents tell the truth: examples run, figures come from files, links lead somewhere."""

import csv
import json
import random
import re
import shlex
import wave
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from urnn.cli import app
from urnn.experiments.folder import RunFolder
from urnn.experiments.presets import ALIASES, GRIDS, PRESETS, configure
from urnn.experiments.train import prepare

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
ERRATA = json.loads((ROOT / "results" / "errata.json").read_text())
EQUATIONS = (ROOT / "docs" / "equations.md").read_text().replace("\n", " ")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_examples_run(page):
    torch.use_deterministic_algorithms(False)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    if not blocks:
        pytest.skip("no example on this page")
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)


COMMANDS = sorted(
    {
        line.split("#")[0].strip()
        for page in PAGES
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), flags=re.DOTALL)
        for line in block.splitlines()
        if line.startswith("urnn ")
    }
)
TOY = {
    "speech": ["max_iterations=4", "hidden=4", "eval_every=2", "log_every=2", "checkpoint_every=2"],
    "copy": ["max_iterations=20", "batch_size=2", "test_sequences=2", "train_sequences=4"],
    "sysid": ["max_iterations=20", "eval_every=20", "starts=1", "time_steps=4", "train_sequences=60"]
    + ["validation_sequences=2", "test_sequences=2"],
    "mnist": ["checksums=false", "train_images=8", "validation_images=2", "test_images=2", "epochs=1", "batch_size=4"]
    + ["hidden=4", "parameters=0", "reflections=2"],
}


def write_sounds(folder: Path) -> None:
    """Noise of six speakers."""
    pytest.importorskip("soundfile", reason="the extra audio is not installed")
    for speaker in range(6):
        path = folder / str(speaker) / "a.wav"
        path.parent.mkdir(parents=True)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(random.Random(speaker).randbytes(4000))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run_at_toy_size(command, tmp_path, monkeypatch, toy_mnist):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # workers of a grid are to find this source tree
    for grid in GRIDS:
        monkeypatch.setitem(GRIDS[grid], "cells", GRIDS[grid]["cells"][:1])
    words = shlex.split(command.replace("--device cuda", "--device cpu"))[1:]
    presets = GRIDS[ALIASES.get(words[1], words[1])]["cells"] if words[0] == "reproduce" else []
    presets = [words[words.index("--preset") + 1]] if "--preset" in words else presets
    task = PRESETS[presets[0]]["task"] if presets else next((name for name in TOY if name in words), "copy")
    if "corpus" in words:
        write_sounds(tmp_path / "corpus")
    if task == "mnist":
        assert "--data" in words  # no test downloads
        words[words.index("--data") + 1] = str(toy_mnist)
    if "--resume" in words:
        folder = Path(words[words.index("--resume") + 1])
        assert folder.parent == Path("runs")  # where `urnn train copy` leaves it by default
        small = prepare(configure(task="copy", own={"time_steps": 3, "hidden": 4, "max_iterations": 20}))
        RunFolder.create(folder, small)
    elif words[0] in ("train", "reproduce"):
        words += [word for pair in TOY[task] for word in ("--set", pair)]
        if "--preset" in words and task == "copy":
            words += ["--T", "3"]
    elif words[0] == "report":
        RunFolder.create(Path(words[1]) / "run", prepare(configure(task="copy", own={"time_steps": 3, "hidden": 4})))
        words += ["--n", "2"]
    elif words[0] == "capacity":
        words[words.index("--n") + 1] = "2..3"
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, f"{result.output}{result.exception!r}"


def test_the_folder_that_the_page_resumes_is_the_default_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "copy", "--T", "3", *(word for pair in TOY["copy"] for word in ("--set", pair))]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert any(f"--resume {folder}" in command for command in COMMANDS for folder in Path("runs").iterdir())


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_named_files_exist(page):
    for target in re.findall(r"`((?:urnn|tests|docs|results|benchmarks)/[\w/.-]+)`", page.read_text()):
        assert (ROOT / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize(
    "quoted",
    [
        f"{ERRATA['descent']['corrected']} times",
        f"it did so {ERRATA['descent']['printed']} times",
        f"was {ERRATA['half_gradient']['smallest']:.2f} to {ERRATA['half_gradient']['largest']:.2f}",
        f"keeps {ERRATA['epsilon']['modrelu_epsilon']:.0%}".replace("%", " %"),
        f"max|W^H W - I| = {ERRATA['drift']['without_polish']:.1e}",
        f"stood at {ERRATA['drift']['with_polish']:.1e}",
    ],
)
def test_figures_of_the_errata_are_those_of_the_file(quoted):
    assert quoted in EQUATIONS


def test_ranks_of_the_errata_are_those_of_the_file():
    assert ERRATA["restricted_rank"] == {str(n): min(n * n, 7 * n - 7) for n in range(2, 13)}


def test_the_table_of_the_readme_is_that_of_the_demo():
    readme = (ROOT / "README.md").read_text()
    for outcome in json.loads((ROOT / "results" / "demo.json").read_text())["outcomes"]:
        row = next(line for line in readme.splitlines() if line.startswith(outcome["model"]))
        for figure in (
            str(outcome["parameters"]),
            str(outcome["iterations"]),
            str(outcome["solved_at"] or "-"),
            f"{outcome['loss_over_baseline']:.1%}",
            f"{outcome['recall']:.1%}",
        ):
            assert figure in row.split()


@pytest.mark.parametrize(("name", "steps"), [("cpu", 20_000), ("h200", 20_000), ("cpu-100000", 100_000)])
def test_the_bound_of_the_readme_is_that_of_the_soak(name, steps):
    found = json.loads((ROOT / "results" / f"soak-{name}.json").read_text())
    assert all(run["steps"] == steps and run["worst_defect"] < 1e-6 for run in found["runs"])
    assert found["tf32"] == (name == "h200")


def test_the_ratios_of_the_readme_are_those_of_the_benchmark():
    readme = (ROOT / "README.md").read_text().replace("\n", " ")
    (name,) = re.findall(r"\]\((benchmarks/results/cpu-.*?)\)", readme)
    with (ROOT / name).open() as file:
        rows = [row for row in csv.DictReader(file) if row["ratio"] and not row["series"]]
    ratios = {(row["shape"], row["model"]): float(row["ratio"]) for row in rows}
    threads = {"1": "one thread", "2": "two threads"}
    assert {threads[row["threads"]] for row in rows} <= set(re.findall(r"one thread|two threads", readme))
    copy = "copy, T = 1000"
    assert f"{ratios[copy, 'UnitaryRNN, cpu']:.2f} times" in readme
    assert f"{ratios[copy, 'UnitaryRNN, time loop']:.1f} times" in readme
    others = sorted(r for (shape, model), r in ratios.items() if model == "UnitaryRNN, cpu" and shape != copy)
    assert f"{others[0]:.1f} to {others[-1]:.1f} times" in readme


def test_the_gpu_figures_of_the_readme_are_those_of_the_files():
    readme = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    found = json.loads((ROOT / "results" / "gpu-h200.json").read_text())["iteration"]
    copy, wide, tf32 = (found[name] for name in ("copy, T = 1000", "MNIST, N = 512", "MNIST, N = 512, TF32"))
    peer = "cudnn_tanh_rnn_graph_ms"
    assert f"takes {copy['iteration_ms']:.2f} ms, its recurrence {copy['recurrence_ms']:.2f} ms" in readme
    assert f"of equal N takes {copy[peer]:.2f};" in readme
    assert f"takes {wide['recurrence_ms']:.1f} ms to cuDNN's {wide[peer]:.1f}" in readme
    assert f"{tf32['recurrence_ms']:.1f} to {tf32[peer]:.1f} in TF32" in readme
    with (ROOT / "benchmarks" / "results" / "h200.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["ratio"] and row["precision"] == "float32"]
    ours, loop = (
        sorted(float(row["ratio"]) for row in rows if row["model"] == model)
        for model in ("UnitaryRNN, gpu", "UnitaryRNN, time loop")
    )
    assert f"takes {ours[0]:.1f} to {ours[-1]:.1f} times as long" in readme
    assert f"a time loop {loop[0]:.0f} to {loop[-1]:.0f} times" in readme


def test_the_variants_of_the_kernels_are_those_of_the_file():
    found = json.loads((ROOT / "results" / "gpu-kernels-h200.json").read_text())
    page = (ROOT / "docs" / "kernels.md").read_text()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    rows = {tuple(row) for row in cells if re.fullmatch(r"[\d.]+", row[-1])}
    variants = [v for block in ("rows", "rows, large batch", "split") for v in found[block]["variants"]]
    assert rows == {
        (name, *(f"{figure:.3f}" for figure in figures)) for name, *figures in (v.values() for v in variants)
    }
    errors, peer = found["error of the states against complex128"], "PyTorch's float32"
    raised = errors["raised"]
    for figure in (errors["sums as the tensor cores truncate them"], errors[peer], raised[peer], raised["ours"]):
        assert f"{figure:.1e}" in page


def test_the_memory_of_the_readme_is_that_of_the_record():
    readme = (ROOT / "README.md").read_text().replace("\n  ", " ")
    found = json.loads((ROOT / "benchmarks" / "results" / "memory-cpu.json").read_text())
    rows = {(row["mode"], row["input_gradient"]): row for row in found["memory"]}
    everything, checkpoint = rows["states of all steps", True], rows["last state, checkpoint", False]
    assert f"peaks at {everything['backward']:.2f} times their size" in readme
    assert everything["kept"] == pytest.approx(1, abs=0.005)
    assert f"T = {checkpoint['T']} at most {checkpoint['backward']:.2f} times those of all steps" in readme
    largest, *others = sorted(found["time"], key=lambda row: -row["T"] * row["B"] * row["N"] ** 2)
    assert largest["T"] == checkpoint["T"]
    assert f"in {largest['ratio']:.1f} times the time" in readme
    ratios = sorted(row["ratio"] for row in others)
    assert f"in {ratios[0]:.1f} to {ratios[-1]:.1f} times, the smallest being the slowest" in readme
    assert others[-1]["ratio"] == ratios[-1]
    assert found["threads"] == 1

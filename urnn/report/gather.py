"""From folders to plain data: runs, results of grids, the demo, soak runs and benchmarks."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import Any

from urnn.bench.tables import Row, read_csv
from urnn.experiments import results
from urnn.experiments.files import read_json
from urnn.experiments.folder import RunFolder
from urnn.experiments.grid import decimated
from urnn.experiments.tasks import TASKS
from urnn.report.commands import command
from urnn.report.media import recordings
from urnn.report.spectrum import eigenvalues

POINTS = 300
"""Of the curve of a run folder at most; ``results/`` holds 100 of each."""


_NO_FOLDER: dict[str, Any] = {"defects": [], "eigenvalues": None, "recordings": [], "note": None}
"""Of a run of which there is no folder."""


@dataclass
class Found:
    """All that a page is made from."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    """name, task, model, recipe, size, seed, group, iterations, losses, baseline, command, and what a folder holds."""
    grids: dict[tuple[str, str], results.Rows] = field(default_factory=dict)
    soak: list[dict[str, Any]] = field(default_factory=list)
    benchmarks: list[Row] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


def gather(paths: Iterable[Path]) -> Found:
    """Read run folders, folders of them, ``results/`` and ``benchmarks/results/``.

    Raises:
        ValueError: a path does not exist, or nothing in it is known.
    """
    found = Found()
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"RUNS: expected folders of runs or results, got {path}, which is none")
        before = len(found.sources)
        _grids(path, found)
        _demo(path, found)
        _soak(path, found)
        for file in sorted(path.glob("*.csv")):
            if rows := read_csv(file):
                found.benchmarks += rows
                found.sources.append(str(file))
        for config in sorted(path.rglob("config.json")):
            found.runs.append(_run(RunFolder(config.parent), _name(config.parent, path)))
            found.sources.append(str(config.parent))
        if len(found.sources) == before:
            raise ValueError(
                f"RUNS: expected a run folder, or a folder of runs, results or benchmarks, got {path}, which holds none"
            )
    found.runs.sort(key=lambda run: list(TASKS).index(run["task"]))
    return found


def _name(folder: Path, root: Path) -> str:
    return folder.relative_to(root).as_posix() if folder != root else (folder.name or str(folder.resolve().name))


def _grids(path: Path, found: Found) -> None:
    for (grid, recipe), rows in results.load(path).items():
        found.grids[grid, recipe] = rows
        found.sources.append(str(path / f"{grid}-{recipe}.json"))
        for row in rows:
            name = f"{row['preset']}, {recipe}, seed {row['seed']}"
            label = row["preset"].partition("/")[2] or row["config"]["model"]
            curve = row["curve"]
            found.runs.append(
                {
                    **_of_config(name, row["config"], label, row["preset"]),
                    "iterations": curve["iteration"],
                    "losses": curve["loss"],
                    "result": row["result"],
                    "environment": row["environment"],
                }
            )


def _of_config(name: str, config: dict[str, Any], label: str, preset: str | None = None) -> dict[str, Any]:
    """What follows from the settings alone."""
    size = f"N = {config['hidden']}"
    if config["task"] == "copy":
        size = f"T = {config['time_steps']}"
    return {
        "name": name,
        "task": config["task"],
        "model": label,
        "family": config["model"],
        "recipe": config["recipe"],
        "size": size,
        "seed": config["seed"],
        "group": f"{preset or config['task']}, {config['model']}, {config['recipe']}, {size}, N = {config['hidden']}",
        "baseline": _baseline(config),
        "command": _command(config, preset),
        **_NO_FOLDER,
    }


def _command(config: dict[str, Any], preset: str | None) -> str | None:
    try:
        return command(config, preset)
    except (TypeError, ValueError):  # settings of another version
        return None


def _baseline(config: dict[str, Any]) -> float | None:
    if config["task"] != "copy":
        return None
    symbols, T = config["symbols"], config["time_steps"]
    return float(symbols * log(config["alphabet"]) / (T + 2 * symbols))


def _run(folder: RunFolder, name: str) -> dict[str, Any]:
    """A run folder, done or not."""
    config = json.loads(json.dumps(folder.config().flat()))
    metrics = _metrics(folder.path / "metrics.jsonl")
    losses = [row for row in metrics if "loss" in row]
    curve = decimated([row["iteration"] for row in losses], [row["loss"] for row in losses], POINTS)
    run = {
        **_of_config(name, config, config["model"]),
        "iterations": curve["iteration"],
        "losses": curve["loss"],
        "defects": [(row["iteration"], row["unitarity_defect"]) for row in metrics if "unitarity_defect" in row],
        "result": folder.result(),
        "environment": folder.environment() if (folder.path / "environment.json").exists() else {},
        "recordings": recordings(folder.path),
    }
    try:
        run["eigenvalues"] = eigenvalues(folder)
    except (ImportError, OSError, ValueError, RuntimeError, KeyError) as error:
        # data or a library that is not here, a checkpoint of another version
        run["note"] = f"no eigenvalues: {error}"
    return run


def _metrics(path: Path) -> list[dict[str, Any]]:
    """The whole lines: a run that is under way may be in the middle of its last one."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _demo(path: Path, found: Found) -> None:
    """The two curves of ``urnn demo``."""
    file = path / "demo.json"
    if not file.exists():
        return
    content = read_json(file)
    task, T, first = content["task"]["name"], content["task"]["time_steps"], content["outcomes"][0]
    words = f"urnn demo --T {T} --hidden {first['hidden']} --iterations {first['iterations']} --seed {content['seed']}"
    for outcome in content["outcomes"]:
        losses = content["losses"][outcome["model"]]
        curve = decimated(list(range(1, len(losses) + 1)), losses, 2 * POINTS)
        model = "lstm" if outcome["unitarity_defect"] is None else "full"
        found.runs.append(
            {
                "name": f"demo, {outcome['model']}",
                "task": task,
                "model": outcome["model"],
                "family": model,
                "recipe": "demo",
                "size": f"T = {T}",
                "seed": content["seed"],
                "group": f"demo, {outcome['model']}",
                "baseline": content["task"]["baseline"],
                "command": words,
                "iterations": curve["iteration"],
                "losses": curve["loss"],
                "result": outcome,
                "environment": {"torch": content["torch"]},
                **_NO_FOLDER,
            }
        )
    found.sources.append(str(file))


def _soak(path: Path, found: Found) -> None:
    for file in sorted(path.glob("soak*.json")):
        content = read_json(file)
        found.soak += [{**row, "device": content["device"], "tf32": content["tf32"]} for row in content["runs"]]
        found.sources.append(str(file))


def unique(runs: Sequence[dict[str, Any]], name: str) -> list[str]:
    """The values of a field in the order of their first occurrence."""
    return list(dict.fromkeys(str(run[name]) for run in runs))

"""The command line: ``urnn train``, ``reproduce`` and what ``urnn --help`` lists."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import urnn
from urnn import cli_bench, cli_report, cli_speech
from urnn._checks import check_int

app = typer.Typer(
    help="Recurrent networks with a unitary recurrence matrix.", no_args_is_help=True, add_completion=False
)
app.add_typer(cli_bench.app, name="bench")
for command in (cli_report.report, cli_speech.features, cli_speech.score, cli_speech.predict):
    app.command()(command)


def main() -> None:
    """Entry point. What a user got wrong is said in one line, without a traceback."""
    try:
        app()
    except (ValueError, TypeError, NotImplementedError, FloatingPointError, OSError) as error:
        Console(stderr=True, highlight=False).print(f"urnn: {error}", markup=False, soft_wrap=True)
        sys.exit(2)


def _version(value: bool) -> None:
    if value:
        typer.echo(urnn.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    time_steps: Annotated[int, typer.Option("--T", help="Steps between the symbols and their recall.")] = 750,
    hidden: Annotated[int, typer.Option(help="N of the unitary RNN; the LSTM is sized to match its parameters.")] = 128,
    iterations: Annotated[int, typer.Option(help="Training iterations of each model.")] = 400,
    batch: Annotated[int, typer.Option(help="Sequences in each iteration.")] = 20,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the figures.")] = Path("runs/demo"),
) -> None:
    """Train a unitary RNN and an LSTM of equal size on the copy problem, side by side (about a minute)."""
    from urnn.experiments.demo import run_demo

    check_int("--iterations", iterations, 1)
    check_int("--batch", batch, 1)
    run_demo(time_steps, hidden, iterations, batch, seed, out, Console())


@app.command()
def train(
    task: Annotated[str | None, typer.Argument(help="copy, sysid, speech or mnist.")] = None,
    preset: Annotated[str | None, typer.Option(help="A cell of a table or figure, such as sysid-N8.")] = None,
    recipe: Annotated[str, typer.Option(help="best: ours; paper: the paper's.")] = "best",
    model: Annotated[str | None, typer.Option(help="A family of unitary matrices, or lstm, gru, rnn.")] = None,
    hidden: Annotated[int | None, typer.Option(help="N, size of the hidden state.")] = None,
    time_steps: Annotated[int | None, typer.Option("--T", help="T, steps of the task.")] = None,
    permuted: Annotated[
        bool, typer.Option("--permuted", help="mnist: pixels in a random order, always the same.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="speech: folder of audio, or a file of features; mnist: folder of its files.")
    ] = None,
    skip_bad: Annotated[bool | None, typer.Option("--skip-bad", help="speech: leave out unusable audio.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of all random numbers.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: one below runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    pairs: Annotated[list[str], typer.Option("--set", help="Any setting, KEY=VALUE; see --list.")] = [],  # noqa: B006
    allow: Annotated[list[str], typer.Option(help="With --resume: a setting that --set may change.")] = [],  # noqa: B006
    show: Annotated[bool, typer.Option("--list", help="Print all settings with their values and end.")] = False,
) -> None:
    """Train one model on one task; leaves a folder with settings, metrics, checkpoints and result."""
    from urnn.experiments import presets
    from urnn.experiments.config import all_settings, from_text
    from urnn.experiments.folder import RunFolder
    from urnn.experiments.summary import summarize
    from urnn.experiments.train import prepare
    from urnn.experiments.train import train as train_in

    console = Console()
    flags = {"model": model, "hidden": hidden, "time_steps": time_steps, "seed": seed, "device": device, "data": data}
    flags |= {"order": "permuted" if permuted else None, "skip_bad": skip_bad}
    own = {name: value for name, value in flags.items() if value is not None}
    if resume is not None:
        if task or preset or own or out:
            raise ValueError("--resume: expected it alone, or with --set and --allow, as the folder holds all settings")
        folder = RunFolder.open(resume)
        folder.change(from_text(folder.config().task, pairs), allow)
    else:
        if task is None and preset is None:
            raise ValueError("task: expected a task, or --preset NAME, or --resume DIR, got none")
        name = task or presets.settings(recipe, preset)["task"]
        config = prepare(presets.configure(recipe, preset, task, {**own, **from_text(name, pairs)}))
        if show:
            for key, known in all_settings(name).items():
                console.print(f"{key} = {config.flat()[key]}    {known.help}", highlight=False, markup=False)
            return
        label = f"{name}{'-permuted' * permuted}-{config.model.replace(',', '-')}-{config.hidden}"
        label = preset.replace("/", "-") if preset else label
        folder = RunFolder.create(out or Path("runs") / f"{label}-{recipe}-seed-{config.seed}", config)
    summarize(folder, train_in(folder, console), console)


@app.command()
def reproduce(
    target: Annotated[
        str, typer.Argument(help="table1, table2, table3, figure1, figure2, figure3, others of the docs, or all.")
    ],
    recipe: Annotated[str, typer.Option(help="best: ours; paper: the paper's.")] = "best",
    jobs: Annotated[int, typer.Option(help="Runs at a time; they share the CPU cores.")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    timit: Annotated[Path | None, typer.Option(help="All of TIMIT; what is made lies in timit/ of --out.")] = None,
    collect: Annotated[bool, typer.Option("--collect", help="Run nothing: gather what is in the folder.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the runs; what is done there is not done again.")] = Path(
        "runs"
    ),
    results: Annotated[Path, typer.Option(help="Folder for the figures that the page is made from.")] = Path("results"),
    docs: Annotated[Path, typer.Option(help="Folder for the page, results.md.")] = Path("docs"),
    data: Annotated[str | None, typer.Option(help="Folder of the data; MNIST is downloaded without it.")] = None,
    pairs: Annotated[list[str], typer.Option("--set", help="A setting for all runs, KEY=VALUE.")] = [],  # noqa: B006
) -> None:
    """Run a table or figure of the paper: all of its cells, and then the page that shows them."""
    from urnn.experiments import grid, presets
    from urnn.experiments import results as tables

    console = Console()
    if timit is not None:
        data = str(cli_speech.whole_timit(timit, data))
        out, results, docs = (folder / "timit" for folder in (out, out, out))
    failed: dict[str, str] = {}
    if data is not None and target == "all":
        raise ValueError("--data: expected one target with it, as each has its own data, got all")
    for name in presets.GRIDS if target == "all" else (presets.ALIASES.get(target, target),):
        of_speech = name in presets.GRIDS and presets.task_of(name) == "speech"
        if target == "all" and of_speech:
            console.print(f"left out: {name}, which needs --data", highlight=False)
            continue
        if collect:
            cells = grid.cells_in(name, recipe, out)
        else:
            own = [*pairs, f"data={data}"] if data is not None else pairs
            cells = grid.cells_of(name, recipe, out, jobs, device, own)
            failed |= grid.run_grid(cells, jobs, console)
        more = None
        if of_speech:
            audio = None if data is None else Path(data)
            cells, more = cli_speech.scored(name, cells, audio, jobs, out / recipe / name, console)
        path = tables.write_results(name, recipe, cells, results, more)
        console.print(f"Figures: {path}", highlight=False, soft_wrap=True)
    console.print(f"Page: {tables.write_page(results, docs)}", highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


@app.command()
def capacity(
    family: Annotated[list[str], typer.Option(help="A family, or several; 'all' for each at its defaults.")] = ["all"],  # noqa: B006
    n: Annotated[str, typer.Option("--n", help="Sizes: 7, or 2..16, or 4,6,8.")] = "2..8",
    option: Annotated[list[str], typer.Option(help="An option of the family, such as reflections=3.")] = [],  # noqa: B006
    targets: Annotated[int, typer.Option(help="Fit so many random unitary matrices and report the share reached.")] = 0,
    smallest: Annotated[
        bool, typer.Option("--smallest", help="Find the smallest full setting of a tunable family.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw rank / N^2 over N for all families into this PNG.")] = None,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
) -> None:
    """Say how much of U(N) a family of unitary matrices can represent."""
    from urnn.capacity import SETTINGS, analyze, report, smallest_full

    sizes = _sizes(n)
    options = dict(_option(text) for text in option)
    families = list(urnn.PARAMETRIZATIONS) if "all" in family else family
    console = Console()
    if smallest:
        if as_json or plot or targets:
            raise ValueError("--smallest: expected it alone, without --json, --plot and --targets")
        for name in SETTINGS if "all" in family else families:
            for size in sizes:
                found = smallest_full(name, size, **{"limit": 4 * size if name == "givens" else None, **options})
                answer = f"full from {SETTINGS[name]} = {found}" if found else "never full"
                console.print(f"{name}, N = {size}: {answer}", highlight=False)
        return
    results = [analyze(name, size, targets=targets, seed=seed, **options) for name in families for size in sizes]
    if as_json:
        typer.echo(report.to_json(results))
    else:
        console.print(report.table(results))
        console.print(report.LEGEND, highlight=False, markup=False)
    if plot is not None:
        report.picture(plot, sizes)
        Console(stderr=True).print(f"Picture: {plot}")


@app.command()
def doctor() -> None:
    """Say what is here (versions, devices, backends) and whether it computes what it should; exit status 1 if not."""
    from urnn.doctor import examine

    console = Console()
    section, failed = "", 0
    for row in examine():
        if row.section != section:
            section = row.section
            console.print(f"\n{section}", highlight=False, markup=False)
        mark = {None: "  ", True: "ok", False: "NO"}[row.ok]
        console.print(f"  {mark}  {row.name}: {row.text}", highlight=False, markup=False, soft_wrap=True)
        failed += row.ok is False
    console.print(f"\n{failed or 'no'} self-test failed" if failed < 2 else f"\n{failed} self-tests failed")
    if failed:
        raise typer.Exit(1)


@app.command()
def errata(
    out: Annotated[Path, typer.Option(help="File for the figures.")] = Path("results/errata.json"),
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
) -> None:
    """Measure what docs/equations.md says about the paper and its released code (about a minute)."""
    import json

    from urnn.experiments.errata import measure

    figures = json.dumps(measure(seed), indent=1)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(figures + "\n")
    typer.echo(figures)


@app.command()
def soak(
    n: Annotated[str, typer.Option("--n", help="Sizes: 64, or 64,128.")] = "64,128",
    steps: Annotated[int, typer.Option(help="Optimizer steps in each run.")] = 20_000,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    tf32: Annotated[bool, typer.Option("--tf32", help="Let the rest of the program use TF32.")] = False,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="File for the figures.")] = None,
) -> None:
    """Train for many steps with every optimizer and report how far W has left U(N)."""
    import json

    import torch

    from urnn.experiments import soak as runs

    check_int("--steps", steps, 1)
    rows = []
    for row in runs.soak(tuple(_sizes(n)), steps, device, tf32, seed):
        rows.append(row)
        typer.echo(json.dumps(row))
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    result = {"device": name, "torch": torch.__version__, "tf32": tf32, "seed": seed, "runs": rows}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")


LARGEST = 100_000
"""No size is so large."""


def _sizes(text: str) -> list[int]:
    """``7``, ``2..16`` or ``4,6,8`` as numbers."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            sizes = list(range(first, min(last, LARGEST) + 1))
        else:
            sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1 or max(sizes) >= LARGEST:
        raise ValueError(f"--n: expected sizes >= 1 such as 7, 2..16 or 4,6,8, got {text!r}")
    return sizes


def _option(text: str) -> tuple[str, Any]:
    """``reflections=3`` as a pair; whole numbers become ints."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"--option: expected NAME=VALUE, got {text!r}")
    return name, int(value) if value.removeprefix("-").isdecimal() else value

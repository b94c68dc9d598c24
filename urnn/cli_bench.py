"""``urnn bench``: times beside those of peers, and the page about them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from urnn._checks import check_int

if TYPE_CHECKING:
    from urnn.bench.device import Device

app = typer.Typer(help="Time the recurrence beside its peers, and write the page about it.", no_args_is_help=True)

Repetitions = Annotated[int | None, typer.Option(help="At most, of each model at each shape.")]
Quick = Annotated[bool, typer.Option("--quick", help="A first look: three shapes, few repetitions, nothing compiled.")]
ShapeNames = Annotated[list[str], typer.Option("--shape", help="Part of a shape's name, or several. Default: all.")]
CsvPath = Annotated[Path | None, typer.Option(help="File for all rows, written shape by shape.")]
Source = Annotated[str | None, typer.Option(help="The commit for the rows, where the source is no git checkout.")]


@app.command("cpu")
def bench_cpu(
    threads: Annotated[int | None, typer.Option(help="Of PyTorch and of the compiled backend.")] = None,
    repetitions: Repetitions = None,
    quick: Quick = False,
    shape: ShapeNames = [],  # noqa: B006
    csv: CsvPath = None,
    commit: Source = None,
) -> None:
    """Time the recurrence beside its peers on the CPU, in one run."""
    import torch

    from urnn.bench.device import Cpu

    if threads is not None:
        torch.set_num_threads(check_int("--threads", threads, 1))
    _bench(Cpu(), repetitions, quick, shape, csv, commit)


@app.command("gpu")
def bench_gpu(
    repetitions: Repetitions = None,
    quick: Quick = False,
    shape: ShapeNames = [],  # noqa: B006
    csv: CsvPath = None,
    commit: Source = None,
) -> None:
    """Time the recurrence beside its peers on a GPU, in one run, in float32 and in TF32."""
    from urnn.bench.device import Gpu

    _bench(Gpu(), repetitions, quick, shape, csv, commit)


@app.command("report")
def bench_report(
    results: Annotated[Path, typer.Option(help="Folder of the CSV files.")] = Path("benchmarks/results"),
    out: Annotated[Path, typer.Option(help="The page; its pictures go to images/ beside it.")] = Path(
        "docs/benchmarks.md"
    ),
) -> None:
    """Write docs/benchmarks.md and its pictures from the results."""
    from urnn.bench import report

    for path in report.write(results, out):
        typer.echo(path)


def _bench(
    device: "Device", repetitions: int | None, quick: bool, names: list[str], csv: Path | None, commit: str | None
) -> None:
    """Measure and print, one shape after the other."""
    import contextlib
    import dataclasses

    import torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from urnn.bench import registry, run, tables

    shapes = registry.select(names, quick)
    effort = run.QUICK if quick else run.EFFORTS[device.name]
    if repetitions is not None:
        effort = dataclasses.replace(effort, repetitions=check_int("--repetitions", repetitions, 1))
    torch.manual_seed(0)
    console = Console()
    measured: list[tables.Row] = []
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        tables.csv_file(csv) if csv is not None else contextlib.nullcontext(list) as save,
    ):
        bar = progress.add_task("starting", total=len(shapes))
        for rows in run.measure(shapes, device, effort, commit, lambda text: progress.update(bar, description=text)):
            save(rows)
            measured += rows
            if not rows[0]["series"]:
                console.print(tables.for_terminal(rows), highlight=False)
            progress.advance(bar)
    if tables.exponents(measured):
        console.print(tables.terminal(tables.scaling(measured), "Over T, B and N"), highlight=False)
    if failures := sum(row["note"].startswith(run.FAILED) for row in measured):
        raise ValueError(f"{failures} of the models failed; the notes say why")

"""The command ``urnn report``."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, of results (results/), of benchmarks.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    n: Annotated[int, typer.Option("--n", help="Largest N of the section on capacity; 0 leaves it out.")] = 12,
) -> None:
    """Write one page, complete in itself, that shows runs and results: tables, curves, spectra, commands."""
    from urnn.report.page import write

    written = write(runs, out, range(2, n + 1))
    typer.echo(f"Report: {written} ({written.stat().st_size / 1e6:.1f} MB)")

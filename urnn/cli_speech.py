"""Commands that only speech has: ``urnn features``, ``score`` and ``predict``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from urnn.experiments.grid import Cell

Skip = Annotated[
    bool, typer.Option("--skip-bad", help="Go on without audio files that cannot be used; they are listed.")
]


def features(
    data: Annotated[Path, typer.Argument(help="Folder of audio: with manifest.csv, TIMIT, or any other.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, ending in .safetensors.")],
    skip_bad: Skip = False,
) -> None:
    """Write the features of a speech corpus to a file, which suffices to train on a machine without audio libraries."""
    from urnn.experiments.speech import corpora
    from urnn.experiments.speech import features as making
    from urnn.experiments.speech.stft import Frames

    if out.suffix != making.SUFFIX:
        raise ValueError(f"--out: expected a name that ends in {making.SUFFIX}, got {out}")
    console = Console()
    made = making.make(corpora.find(data), Frames(), skip_bad, console)
    out.parent.mkdir(parents=True, exist_ok=True)
    making.write(out, made)
    for note in made.notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    parts = ", ".join(f"{made.splits.count(split)} {split}" for split in corpora.SPLITS)
    console.print(
        f"{out}: {len(made.ids)} utterances ({parts}), {len(made.values)} frames", highlight=False, soft_wrap=True
    )


def score(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs of the task speech.")],
    data: Annotated[Path | None, typer.Option(help="Folder of audio; default: that of the run.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
) -> None:
    """Reconstruct the evaluation utterances from a run's predictions: SegSNR, STOI and PESQ, into scores.json."""
    from urnn.experiments.folder import RunFolder
    from urnn.experiments.speech import scoring

    console = Console()
    table = Table(box=SIMPLE_HEAD, title="Mean over utterances (95 % bootstrap interval)")
    table.add_column("run")
    for name in scoring.MEASURES:
        table.add_column(name, justify="right")
    table.add_column("left out", justify="right")
    for path in runs:
        scores = scoring.score_run(RunFolder.open(path), data, jobs, console)
        shown = [
            f"{m['mean']:.3f} ({m['low']:.3f} to {m['high']:.3f})" if m["utterances"] else "-"
            for m in scores["means"].values()
        ]
        table.add_row(path.name, *shown, str(len({u for found in scores["left_out"].values() for u in found})))
    console.print(table)


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run of the task speech.")],
    source: Annotated[Path, typer.Argument(metavar="IN.WAV", help="WAV, FLAC or NIST SPHERE.")],
    out: Annotated[
        Path, typer.Argument(metavar="OUT.WAV", help="What the model predicts, with the phases of the input.")
    ],
) -> None:
    """Predict each frame of an audio file from those before it; writes audio and a picture of both spectra."""
    from urnn.experiments.folder import RunFolder
    from urnn.experiments.speech.predict import predict_file

    done = predict_file(RunFolder.open(run), source, out)
    typer.echo(f"Squared error: {done.mse:.2f} dB^2; of repeating the last frame: {done.previous_frame:.2f} dB^2")
    typer.echo(f"Audio: {done.audio}    Picture: {done.picture}")


def whole_timit(folder: Path, data: str | None) -> Path:
    """``folder``, if all of TIMIT is in it."""
    from urnn.experiments.speech import timit

    if data is not None:
        raise ValueError("--timit: expected it without --data, got both")
    if notes := timit.find(folder).notes:
        raise ValueError(f"--timit: expected all of TIMIT, got a part. {'. '.join(notes)}. --data takes what is there.")
    return folder


def scored(
    grid: str, cells: "list[Cell]", data: Path | None, jobs: int, folder: Path, console: Console
) -> "tuple[list[Cell], dict[tuple[str, int], Any] | None]":
    """Score the runs of a grid, where there is audio; of Figure 2 the runs that it shows, and their spectra."""
    from urnn.experiments.folder import RunFolder
    from urnn.experiments.speech import figure2, scoring

    done = [c for c in cells if (c.path / "config.json").exists() and RunFolder.open(c.path).result() is not None]
    if grid == "figure2":
        done = figure2.best_cells(done)
    source = data or (Path(scoring.speech_of(done[0].config).data) if done else None)
    if source is None or not source.is_dir():
        console.print(f"not scored: {grid}, as --data is no folder of audio; --collect does it later", highlight=False)
        return ([], None) if grid == "figure2" else (cells, None)
    if grid == "figure2":
        return done, figure2.predictions(done, source, folder)
    scoring.score_cells([cell.path for cell in done], source, jobs, console)
    return cells, None

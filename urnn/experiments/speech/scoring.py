"""From a run to scores: its predictions made audible, and measured utterance by utterance.

``scores.json`` of a run folder holds what every measure found for every utterance of the evaluation split, their means
with bootstrap intervals, and which utterances a measure could not be had of, and why. Those enter no mean.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from urnn._checks import check_int
from urnn.experiments import checkpoint, models
from urnn.experiments.config import Config
from urnn.experiments.files import read_json, write_json
from urnn.experiments.folder import RunFolder
from urnn.experiments.speech import baselines, features, metrics
from urnn.experiments.speech.audio import Samples, read_audio
from urnn.experiments.speech.corpora import Utterance, find
from urnn.experiments.speech.features import SHORTEST
from urnn.experiments.speech.stft import Frames
from urnn.experiments.tasks.speech import Speech, predict, training

SCORES = "scores.json"
BASELINES = "speech-baselines.json"
"""Beside the folders of a grid."""
MEASURES = (*metrics.MEASURES, "pesq_raw")
Pair = tuple[str, Samples, Samples]
"""Name, reference and signal."""


def speech_of(config: Config) -> Speech:
    """The task of a run, which must be speech."""
    if not isinstance(config.problem, Speech):
        raise ValueError(f"run: expected one of the task speech, got {config.task}")
    return config.problem


def load_model(folder: RunFolder) -> nn.Module:
    """The model of a run with its best weights, on the CPU.

    Raises:
        ValueError: the run is of another task or has no checkpoint.
    """
    config = folder.config()
    task = speech_of(config)
    found = checkpoint.found(folder.path / "checkpoint")
    if not found:
        raise ValueError(f"run: expected a run with a checkpoint, got {folder.path}, which has none")
    tensors, meta = checkpoint.load(found[-1])
    weights = checkpoint.unflatten(meta["best"], tensors) or checkpoint.unflatten(meta["model"], tensors)
    model = models.build(config, *task.widths())
    for name in ("mean", "deviation"):
        model.register_buffer(name, weights[name])
    model.load_state_dict(weights)
    return model.eval()


def predictor(folder: RunFolder) -> baselines.Predict:
    """The model of a run as a function from features (T, F) to predictions (T - 1, F)."""
    model, task = load_model(folder), speech_of(folder.config())
    dtype = model.get_buffer("mean").dtype

    @torch.no_grad()
    def of(x: Tensor) -> Tensor:
        return predict(model, x[:-1].to(dtype).unsqueeze(1), task).squeeze(1)

    return of


def heard(x: Samples, predict_frames: baselines.Predict, frames: Frames) -> Samples:
    """``x`` as it is predicted: magnitudes from the predictions, phases and edge frames its own."""
    signal = torch.from_numpy(x)
    y: Samples = frames.resynthesized(signal, predict_frames(frames.features(signal).float()).double()).numpy()
    return y


def score_run(folder: RunFolder, data: Path | None, jobs: int, console: Console) -> dict[str, Any]:
    """Score a run and write its ``scores.json``; one that is there is returned as it is."""
    path = folder.path / SCORES
    if path.exists():
        found: dict[str, Any] = read_json(path)
        return found
    task = speech_of(folder.config())
    scores = score(evaluation_of(data or Path(task.data)), predictor(folder), task.frames, jobs, console)
    write_json(path, scores)
    return scores


def score_baselines(
    data: Path, train: Iterable[Tensor], frames: Frames, jobs: int, console: Console
) -> dict[str, dict[str, Any]]:
    """The scores of the predictions that need no training; the linear one is fitted to ``train``."""
    utterances = evaluation_of(data)
    methods: Mapping[str, baselines.Predict] = {
        "previous frame": baselines.previous_frame,
        "linear prediction": baselines.LinearPrediction.fitted(train),
    }
    return {name: score(utterances, method, frames, jobs, console) for name, method in methods.items()}


def evaluation_of(data: Path) -> list[Utterance]:
    """The utterances of the evaluation split of a folder of audio."""
    return [one for one in find(data.expanduser()).utterances if one.split == "eval"]


def score(
    utterances: Iterable[Utterance], method: baselines.Predict, frames: Frames, jobs: int, console: Console
) -> dict[str, Any]:
    """Every measure of every utterance, with ``jobs`` processes and a bar of progress on a terminal."""
    pairs: list[Pair] = []
    of_utterances: dict[str, dict[str, float | str]] = {}
    for one in utterances:
        try:
            x = read_audio(one.path, frames.rate)
            if frames.count(len(x)) < SHORTEST:
                raise ValueError(f"{one.path}: expected at least {SHORTEST} frames, got {len(x)} samples")
        except ValueError as error:
            of_utterances[one.utt_id] = dict.fromkeys(MEASURES, str(error))
        else:
            pairs.append((one.utt_id, x, heard(x, method, frames)))
    _measure(pairs, frames.rate, check_int("--jobs", jobs, 1), console, of_utterances.__setitem__)
    return {**summarized(of_utterances), "utterances": dict(sorted(of_utterances.items()))}


def summarized(of_utterances: Mapping[str, Mapping[str, float | str]]) -> dict[str, Any]:
    """Means with their intervals, and which utterances are left out of them for what reason."""
    means, left_out = {}, {}
    for name in MEASURES:
        values = [v for found in of_utterances.values() if not isinstance(v := found[name], str)]
        reasons = {utt_id: v for utt_id, found in of_utterances.items() if isinstance(v := found[name], str)}
        low, high = metrics.interval(values) if values else (None, None)
        mean = float(np.mean(values)) if values else None
        means[name] = {"mean": mean, "low": low, "high": high, "utterances": len(values)}
        if reasons:
            left_out[name] = reasons
    return {"means": means, "left_out": left_out}


def _measure(
    pairs: list[Pair], rate: int, jobs: int, console: Console, keep: Callable[[str, dict[str, float | str]], None]
) -> None:
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("scores", total=len(pairs))
        if jobs == 1:
            for name, reference, signal in pairs:
                keep(name, metrics.measured(reference, signal, rate))
                progress.advance(bar)
            return
        spawn = multiprocessing.get_context("spawn")  # a fork would inherit PyTorch's threads
        with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
            for name, found in pool.map(_one, ((*pair, rate) for pair in pairs), chunksize=4):
                keep(name, found)
                progress.advance(bar)


def _one(item: tuple[str, Samples, Samples, int]) -> tuple[str, dict[str, float | str]]:
    name, reference, signal, rate = item
    return name, metrics.measured(reference, signal, rate)


def score_cells(paths: Iterable[Path], data: Path, jobs: int, console: Console) -> None:
    """Score the runs in these folders, and beside them the baselines, where that is not done yet."""
    for path in paths:
        folder = RunFolder.open(path)
        score_run(folder, data, jobs, console)
        beside = path.parents[1] / BASELINES
        if not beside.exists():
            config = folder.config()
            task = speech_of(config)
            made = features.load(data, task.frames, task.skip_bad, console)
            train = [made[int(place)] for place in training(task, made, config.seed)]
            write_json(beside, score_baselines(data, train, task.frames, jobs, console))


def with_scores(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    """The result of a run with its scores and those of the baselines; of utterances the figures alone, in order."""
    result = {**result, "eval_mse_of_utterances": [v for _, v in sorted(result["eval_mse_of_utterances"].items())]}
    if (path / SCORES).exists():
        result["scores"] = _without_names(read_json(path / SCORES))
    if (path.parents[1] / BASELINES).exists():
        scores = read_json(path.parents[1] / BASELINES)
        result["baselines"] = {
            name: {**found, "scores": {k: scores[name][k] for k in ("means", "left_out")}}
            for name, found in result["baselines"].items()
        }
    return result


def _without_names(scores: dict[str, Any]) -> dict[str, Any]:
    each = {
        name: [None if isinstance(v := found[name], str) else v for found in scores["utterances"].values()]
        for name in MEASURES
    }
    return {**scores, "utterances": each}

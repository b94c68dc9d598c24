"""Speech (section 5.2): predict the spectrum of the next frame from all frames so far.

Note [Batches of like lengths]
In each epoch the utterances are shuffled, cut down to whole batches, and sorted by length with a random tenth more or
less; a batch takes neighbours, and batches come in random order. Its rows end at different frames: the layer is told
where, and the loss is a mean over the frames and bins that exist. On a GPU the frames of a batch are rounded up, so
that there are few shapes.

Note [The released code's error]
It divides the squared error by all frames of a set that was padded to its longest utterance, and the last frame that it
scores is predicted against padding, of which the feature is -50 dB. The figure so depends on the longest utterance of
the set. It is reported under its own name, beside the mean over what exists.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from torch import Tensor, nn

from urnn._checks import check_choice, check_number
from urnn.experiments import models
from urnn.experiments.settings import setting
from urnn.experiments.speech import baselines, features, metrics
from urnn.experiments.speech.stft import FLOOR, Frames
from urnn.experiments.tasks.base import Problem, Task, generator

if TYPE_CHECKING:
    from urnn.experiments.config import Config

PADDING = 10 * math.log10(FLOOR)
ROUND = 32
"""Frames of a batch are a multiple of this on a GPU."""
ADDED = ("none", "previous")


@dataclass(frozen=True)
class Speech(Task):
    """One-frame-ahead prediction; ``data`` is a folder of audio or a file of features."""

    data: str = setting("", "folder of the corpus, or a file that `urnn features` wrote", place=True)
    skip_bad: bool = setting(False, "leave out audio files that cannot be used, and list them")
    fraction: float = setting(1.0, "share of the training utterances that is used")
    feature: str = setting("log_power", "log_power: 10 log10(1e-5 + |X|^2)")
    rate: int = setting(8000, "samples in a second; audio of a higher rate is resampled")
    window: int = setting(256, "samples of the Hann window")
    hop: int = setting(128, "samples from one frame to the next")
    normalize: bool = setting(True, "give the model features of mean 0 and deviation 1, by bin, of the training data")
    gain: float = setting(1.0, "what the features that the model is given are multiplied with")
    add: str = setting("previous", "what the output of the model is added to: the previous frame, or none")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("fraction", self.fraction, 0.0, 1.0)
        check_number("gain", self.gain, 0.0)
        check_choice("add", self.add, ADDED)
        self.frames  # noqa: B018  checks its settings

    @property
    def frames(self) -> Frames:
        """How audio becomes features."""
        return Frames(self.feature, self.rate, self.window, self.hop)

    def widths(self) -> tuple[int, int]:
        return self.frames.bins, self.frames.bins

    def settled(self, config: "Config") -> "Config":
        """The place of the data from wherever the run goes on."""
        path = Path(self.data).expanduser()
        return (
            replace(config, problem=replace(self, data=str(path.resolve()))) if self.data and path.exists() else config
        )

    def load(self, console: Console) -> features.Features:
        """The features of ``data``."""
        if not self.data:
            raise ValueError("data: expected a folder of audio or a file of features, got none. Give it with --data.")
        return features.load(Path(self.data).expanduser(), self.frames, self.skip_bad, console)

    def start(self, config: "Config") -> "SpeechProblem":
        return SpeechProblem(self, config)


class SpeechProblem(Problem):
    """Speech in a run."""

    def __init__(self, task: Speech, config: "Config") -> None:
        super().__init__(config)
        self.task, self.features = task, task.load(Console())
        self.splits = {name: self.features.places(name) for name in ("valid", "eval")}
        self.splits["train"] = training(task, self.features, config.seed)
        self.values = self.features.values.to(self.device, self.dtype)
        self.starts = self.features.lengths.cumsum(0) - self.features.lengths
        self.lengths = self.features.lengths - 1  # of predictions
        self.rows = min(config.batch_size, len(self.splits["train"]))
        self.iterations_per_epoch = len(self.splits["train"]) // self.rows
        round_up = ROUND if self.device.type == "cuda" else 1
        self._steps = -(-self.lengths // round_up) * round_up
        self.kinds = len(self._steps[self.splits["train"]].unique())

    def model(self) -> nn.Module:
        """The model keeps the mean and the deviation of the training data, which belong to what it computes."""
        model = models.build(self.config, *self.task.widths())
        train = torch.cat([self.features[int(place)] for place in self.splits["train"]])
        mean, deviation = train.mean(0), train.std(0, correction=0).clamp_min(1e-3)
        if not self.task.normalize:
            mean, deviation = torch.zeros_like(mean), torch.ones_like(deviation)
        model.register_buffer("mean", mean.to(self.dtype))
        model.register_buffer("deviation", deviation.to(self.dtype))
        return model

    def batch(self, iteration: int) -> tuple[Tensor, ...]:
        """Features (T, B, F), what follows each of them, and the number of each row's frames (B,)."""
        epoch, place = divmod(iteration, self.iterations_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._of_epoch(epoch)
        return self.padded(self._batches[place])

    def _of_epoch(self, epoch: int) -> list[Tensor]:
        source = generator(self.config.seed, "epoch", epoch)
        train = self.splits["train"]
        chosen = train[torch.randperm(len(train), generator=source)[: self.iterations_per_epoch * self.rows]]
        ranks = self.lengths[chosen] * (0.9 + 0.2 * torch.rand(len(chosen), generator=source))
        batches = chosen[ranks.argsort()].split(self.rows)
        return [batches[i] for i in torch.randperm(len(batches), generator=source)]

    def padded(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A batch of these utterances, with zeros behind their ends."""
        lengths = self.lengths[places]
        steps = torch.arange(int(self._steps[places].max()))
        at = self.starts[places] + torch.minimum(steps[:, None], lengths - 1)  # (T, B)
        real = (steps[:, None] < lengths).to(self.device).unsqueeze(-1)
        x, y = (torch.where(real, self.values[(at + k).to(self.device)], 0.0) for k in (0, 1))
        return x, y, lengths.to(self.device)

    def predict(self, model: nn.Module, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Predictions (T, B, F) of the frames after those of ``x``."""
        return predict(model, x, self.task, lengths)

    def errors(self, model: nn.Module, x: Tensor, y: Tensor, lengths: Tensor) -> Tensor:
        """Squared errors (T, B, F), 0 where there is no frame."""
        steps = torch.arange(len(x), device=x.device)
        real = (steps[:, None] < lengths).unsqueeze(-1)
        return torch.where(real, self.predict(model, x, lengths) - y, 0.0).square()

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        x, y, lengths = batch
        return self.errors(model, x, y, lengths).sum() / (lengths.sum() * x.shape[-1])

    def evaluate(self, model: nn.Module) -> dict[str, list[float]]:
        """Squared error of validation data, in dB^2: the mean over all frames and bins."""
        return {"validation": [self._mean("valid", self._sums(model, "valid"))]}

    def test(self, model: nn.Module, evaluations: list[dict[str, Any]]) -> dict[str, Any]:
        train = (self.features[int(place)] for place in self.splits["train"])
        linear = baselines.LinearPrediction.fitted(train)
        figures: dict[str, Any] = {"iterations_per_epoch": self.iterations_per_epoch, "baselines": {}}
        for split in ("valid", "eval"):
            sums, padded = self._sums(model, split), self._last(model, split)
            figures[f"{split}_mse"] = self._mean(split, sums)
            steps = (
                int(self.features.lengths[self.splits[split]].max()) * len(self.splits[split]) * self.values.shape[1]
            )
            figures[f"{split}_mse_released_code"] = float((sums + padded).sum()) / steps
            for name, method in (("previous frame", baselines.previous_frame), ("linear prediction", linear)):
                found = figures["baselines"].setdefault(name, {})
                found[f"{split}_mse"] = self._mean(split, self._method_sums(method, split))
        sizes = self.lengths[self.splits["eval"]] * self.values.shape[1]
        each = (sums / sizes).tolist()
        figures["eval_mse_interval"] = metrics.interval(each)
        figures["eval_mse_of_utterances"] = {
            self.features.ids[int(place)]: value for place, value in zip(self.splits["eval"], each, strict=True)
        }
        return {**figures, "skipped": list(self.features.skipped), "notes": list(self.features.notes)}

    def _chunks(self, split: str) -> Iterator[Tensor]:
        """Which utterances of a split to take at a time, like lengths together."""
        return iter(self.lengths[self.splits[split]].argsort().split(self.config.batch_size))

    def _sums(self, model: nn.Module, split: str) -> Tensor:
        """Sum of the squared errors of each utterance of a split, in its order."""
        sums = torch.zeros(len(self.splits[split]), dtype=torch.float64)
        for chunk in self._chunks(split):
            errors = self.errors(model, *self.padded(self.splits[split][chunk]))
            sums[chunk] = errors.detach().sum((0, 2), dtype=torch.float64).cpu()
        return sums

    def _last(self, model: nn.Module, split: str) -> Tensor:
        """Squared error of what is predicted after the end of each utterance, against padding."""
        sums = torch.zeros(len(self.splits[split]), dtype=torch.float64)
        for row, place in enumerate(self.splits[split]):
            start, steps = int(self.starts[place]), int(self.lengths[place]) + 1
            x = self.values[start : start + steps].unsqueeze(1)
            sums[row] = float((self.predict(model, x)[-1] - PADDING).detach().square().sum())
        return sums

    def _method_sums(self, method: baselines.Predict, split: str) -> Tensor:
        pairs = ((method(x), x[1:]) for x in (self.features[int(place)] for place in self.splits[split]))
        return torch.stack([(y - true).double().square().sum() for y, true in pairs])

    def _mean(self, split: str, sums: Tensor) -> float:
        """Over all frames and bins of a split."""
        return float(sums.sum()) / (int(self.lengths[self.splits[split]].sum()) * self.values.shape[1])


def training(task: Speech, made: features.Features, seed: int) -> Tensor:
    """Numbers of the utterances that are trained on."""
    places = made.places("train")
    order = torch.randperm(len(places), generator=generator(seed, "fraction"))
    keep = max(1, round(task.fraction * len(order)))
    return places[order[:keep].sort().values]


def predict(model: nn.Module, x: Tensor, task: Speech, lengths: Tensor | None = None) -> Tensor:
    """Predictions (T, B, F) of the frames after those of ``x`` (T, B, F)."""
    mean, deviation = model.get_buffer("mean"), model.get_buffer("deviation")
    y: Tensor = model(task.gain * (x - mean) / deviation, lengths)
    return (x if task.add == "previous" else mean) + deviation * y

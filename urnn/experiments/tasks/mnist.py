"""Pixel-by-pixel MNIST (section 5.3): an image is a sequence of 784 numbers, and its class is told at the end.

Note [The split]
The paper holds back 5000 of the 60000 training images. The released code takes the first ones; so does this.

Note [Images on the device]
All images lie on the device as bytes, their pixels in the order of the run. A batch is the numbers of its images:
they are gathered, turned to (T, B, 1) and scaled to [0, 1] inside the loss, as part of the CUDA graph of a step.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from urnn._checks import check_choice, check_int, check_number
from urnn.experiments import models
from urnn.experiments.data import mnist
from urnn.experiments.settings import setting
from urnn.experiments.tasks.base import Problem, Task

if TYPE_CHECKING:
    from urnn.experiments.config import Config

ORDERS = ("rows", "permuted", "bits")
READOUTS = ("last", "mean", "times")
EVALUATED = 250
"""Images at a time where nothing is learned."""


@dataclass(frozen=True)
class Mnist(Task):
    """784 pixels, one at each step; the class out of ten after the last."""

    data: str | None = setting(None, "folder of MNIST's four files; none: they are downloaded", place=True)
    checksums: bool = setting(True, "the files must be MNIST's own; false takes others of the same form")
    order: str = setting("rows", "of the pixels: rows, permuted (by permutation_seed), or bits (bit reversal)")
    permutation_seed: int = setting(92916, "of the permutation: numpy's RandomState(seed).permutation(784)")
    train_images: int = setting(55_000, "images to train on, those after the ones for validation")
    validation_images: int = setting(5000, "images that choose the weights, the first of the training set")
    test_images: int = setting(10_000, "images of the final test, the first of the test set")
    epochs: int = setting(
        0, "if not 0, max_iterations makes so many epochs, with an evaluation and a checkpoint after each"
    )
    readout: str = setting(
        "last", "what the class is read from: the last state, the mean of the last readout_states, or readout_states "
        "states at equally spaced times, side by side"
    )  # fmt: skip
    readout_states: int = setting(8, "states that the readouts mean and times take")
    dropout: float = setting(0.0, "share of the state's entries that the readout does not see in training")
    label_smoothing: float = setting(0.0, "share of the target that is spread over all classes in training")
    forget_bias: float = setting(0.0, "added to the biases of an LSTM's forget gates at first")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("order", self.order, ORDERS)
        check_choice("readout", self.readout, READOUTS)
        check_int("permutation_seed", self.permutation_seed, 0, 2**32 - 1)
        for name in ("train_images", "validation_images", "test_images", "readout_states"):
            check_int(name, getattr(self, name), 1)
        check_int("epochs", self.epochs, 0)
        for name in ("dropout", "label_smoothing"):
            check_number(name, getattr(self, name), 0.0, 1.0, open_end=True)

    def pixel_order(self, T: int) -> Tensor:
        """Which pixel comes at which of the T steps, (T,).

        >>> Mnist(order="bits").pixel_order(6).tolist()
        [0, 4, 2, 1, 5, 3]
        """
        if self.order == "permuted":
            return torch.from_numpy(np.random.RandomState(self.permutation_seed).permutation(T))
        if self.order == "bits":  # of the next power of two, without the places that are not there
            width = max((T - 1).bit_length(), 1)
            places = (int(f"{i:0{width}b}"[::-1], 2) for i in range(1 << width))
            return torch.tensor([place for place in places if place < T])
        return torch.arange(T)

    def read_times(self, T: int) -> list[int]:
        """The steps of T whose states the readout takes."""
        if self.readout == "last":
            return [T - 1]
        k = check_int("readout_states", self.readout_states, 1, T)
        return list(range(T - k, T)) if self.readout == "mean" else [T * (i + 1) // k - 1 for i in range(k)]

    def epoch(self, batch_size: int) -> int:
        """Iterations of an epoch."""
        return self.train_images // min(batch_size, self.train_images)

    def widths(self) -> tuple[int, int]:
        return 1, mnist.CLASSES

    def settled(self, config: "Config") -> "Config":
        """Epochs as iterations; the losses are read about as often as ``log_every`` says."""
        if self.data is not None:
            mnist.find(Path(self.data))
            config = replace(config, problem=replace(self, data=str(Path(self.data).resolve())))  # to resume anywhere
        if self.readout == "times" and config.parameters:
            raise ValueError(
                f"parameters: expected 0 with readout='times', whose size hangs on readout_states, "
                f"got {config.parameters}. Set hidden."
            )
        if not self.epochs:
            return config
        epoch = self.epoch(config.batch_size)
        divisors = [d for d in range(1, epoch + 1) if epoch % d == 0]
        log_every = min(divisors, key=lambda d: abs(math.log(d / config.log_every)))
        return replace(
            config,
            max_iterations=self.epochs * epoch,
            eval_every=epoch,
            checkpoint_every=epoch,
            log_every=log_every,
        )

    def start(self, config: "Config") -> "MnistProblem":
        return MnistProblem(self, config)


class Classifier(nn.Module):
    """A recurrent network and a readout of some of its states, (T, B, 1) to (B, 10).

    Args:
        model: network and readout as ``models.build`` makes them.
        task: says which states are read.
        T: steps of the sequences.
    """

    times: Tensor

    def __init__(self, model: models.Unitary | models.Peer, task: Mnist, T: int) -> None:
        super().__init__()
        self.rnn, self.readout = model.rnn, model.readout
        self.kind, self.dropout = task.readout, task.dropout
        self.register_buffer("times", torch.tensor(task.read_times(T)), persistent=False)
        if isinstance(model, models.Unitary) and task.readout == "last":
            model.rnn.return_sequence = False
        if task.readout == "times":
            width, dtype = len(self.times) * self.rnn.hidden_size, model.readout.weight.dtype
            self.readout = type(model.readout)(width, mnist.CLASSES, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        h = self._read(*self.rnn(x))
        if self.dropout and self.training:
            h = h * nn.functional.dropout(torch.ones_like(h.real), self.dropout)
        y: Tensor = self.readout(h)
        return y

    def _read(self, states: Tensor | None, last: Tensor) -> Tensor:
        """What the readout takes, (B, N) or (B, k N)."""
        if states is None:
            return last[-1]
        if self.kind == "last":
            return states[-1]
        if self.kind == "mean":
            return states[-len(self.times) :].mean(0)
        read = states.index_select(0, self.times)  # (k, B, N)
        return read.transpose(0, 1).flatten(1)


class MnistProblem(Problem):
    """Pixel-by-pixel MNIST in a run."""

    def __init__(self, task: Mnist, config: "Config") -> None:
        super().__init__(config)
        self.task = task
        folder = Path(task.data) if task.data is not None else mnist.download()
        train, test = mnist.load(folder, task.checksums)
        first = task.validation_images
        needed = first + task.train_images
        if needed > len(train.images):
            raise ValueError(
                f"train_images: expected at most {len(train.images) - first}, as {first} of the "
                f"{len(train.images)} images are for validation, got {task.train_images}"
            )
        if task.test_images > len(test.images):
            raise ValueError(f"test_images: expected at most {len(test.images)}, got {task.test_images}")
        self.T = train.images[0].numel()
        self.order = task.pixel_order(self.T)
        parts = {
            "train": (train, slice(first, needed)),
            "validation": (train, slice(first)),
            "test": (test, slice(task.test_images)),
        }
        self.images = {name: self._pixels(part.images[rows]) for name, (part, rows) in parts.items()}
        self.labels = {name: part.labels[rows].long().to(self.device) for name, (part, rows) in parts.items()}

    def _pixels(self, images: Tensor) -> Tensor:
        """Images (n, rows, columns) as bytes in the order of the run, (n, T)."""
        return images.flatten(1)[:, self.order].to(self.device)

    def model(self) -> nn.Module:
        model = models.build(self.config, *self.task.widths())
        assert isinstance(model, models.Unitary | models.Peer)
        if isinstance(model.rnn, nn.LSTM):
            n = self.config.hidden
            with torch.no_grad():
                for layer in range(self.config.num_layers):
                    model.rnn.get_parameter(f"bias_ih_l{layer}")[n : 2 * n] += self.task.forget_bias
        return Classifier(model, self.task, self.T)

    def batch(self, iteration: int) -> tuple[Tensor, ...]:
        """Numbers of the images, (B,)."""
        return (self.rows_of_epoch(iteration, self.task.train_images),)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        (rows,) = batch
        logits = model(self._sequences(self.images["train"].index_select(0, rows)))
        labels = self.labels["train"].index_select(0, rows)
        return nn.functional.cross_entropy(logits, labels, label_smoothing=self.task.label_smoothing)

    def _sequences(self, pixels: Tensor) -> Tensor:
        """Bytes (B, T) as what the network takes, (T, B, 1) in [0, 1]."""
        return pixels.mT.to(self.dtype, memory_format=torch.contiguous_format).unsqueeze(-1) / 255

    def evaluate(self, model: nn.Module) -> dict[str, list[float]]:
        """Cross-entropy and share of right answers on the validation set."""
        loss, accuracy, _ = self._measured(model, "validation")
        return {"validation": [loss], "validation_accuracy": [accuracy]}

    def _measured(self, model: nn.Module, name: str) -> tuple[float, float, Tensor]:
        """Mean cross-entropy, share of right answers, and how many of each class (rows) were taken for which."""
        losses, guesses = [], []
        labels = self.labels[name]
        for pixels, right in zip(self.images[name].split(EVALUATED), labels.split(EVALUATED), strict=True):
            logits = model(self._sequences(pixels))
            losses.append(nn.functional.cross_entropy(logits, right, reduction="none"))
            guesses.append(logits.argmax(-1))
        pairs = labels * mnist.CLASSES + torch.cat(guesses)
        confusion = torch.bincount(pairs.cpu(), minlength=mnist.CLASSES**2).view(mnist.CLASSES, mnist.CLASSES)
        return float(torch.cat(losses).mean()), float(confusion.trace()) / len(labels), confusion

    def test(self, model: nn.Module, evaluations: list[dict[str, Any]]) -> dict[str, Any]:
        """Figures of the best weights; this is the only look at the test set."""
        validation_loss, validation_accuracy, _ = self._measured(model, "validation")
        test_loss, test_accuracy, confusion = self._measured(model, "test")
        return {
            "validation_loss": validation_loss,
            "validation_accuracy": validation_accuracy,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "confusion": confusion.tolist(),
            "learning": {
                "iteration": [row["iteration"] for row in evaluations],
                "loss": [row["validation"][0] for row in evaluations],
                "accuracy": [row["validation_accuracy"][0] for row in evaluations],
            },
            "iterations_per_epoch": self.task.epoch(self.config.batch_size),
            "recurrence_parameters": models.count_parameters(model, "_hh_"),
        }

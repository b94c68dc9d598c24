"""System identification (section 5.1.1): learn the W of a unitary RNN from its inputs and outputs.

Note [One ensemble]
Every initialisation of every learner on every system of one size is a member of one ensemble, and the recurrence and
the optimizers take them all as one batch. The members do not see each other: the loss is a sum, the scale of W's step
is one number for each matrix, and all else works by entries.

Note [One permutation]
The permutation P of Eq. 3 is drawn once for each seed and size. The systems, the starts and the restricted learners
share it, so a system from W_u is a member of the restricted learner's family.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from urnn._checks import check_int, check_number
from urnn.capacity import analyze
from urnn.experiments import models
from urnn.experiments.settings import setting, unknown
from urnn.experiments.tasks.base import Problem, Task
from urnn.linalg import haar_unitary
from urnn.ops import recurrence
from urnn.parametrizations import PARAMETRIZATIONS, Full, Parametrization, Restricted

if TYPE_CHECKING:
    from urnn.experiments.config import Config

SYSTEMS = ("Wu", "Wg", "haar")
"""W of the system: a member of Eq. 3's family, a product of two of them, or any unitary matrix."""

RANKED = 32
"""The rank of a family is measured up to this size; it costs n^6."""


@dataclass(frozen=True)
class SystemId(Task):
    """h_t = modReLU(W h_{t-1} + x_t) with h_0 = 0 and y_t = h_t; only W is learned."""

    families_alone: ClassVar[bool] = True

    time_steps: int = setting(150, "T, length of the sequences")
    systems: str = setting("Wu,Wg", "where the systems come from: Wu, Wg, haar, or several")
    starts: int = setting(6, "initialisations of each learner, members of W_u where its family has them")
    train_sequences: int = setting(20_000, "training sequences")
    validation_sequences: int = setting(1000, "validation sequences")
    test_sequences: int = setting(1000, "test sequences")
    first_length: int = setting(2, "length curriculum: train on so many first steps, growing geometrically to T")
    growth: float = setting(0.6, "share of the iterations after which the whole length is reached; 0: no curriculum")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("time_steps", "starts", "train_sequences", "validation_sequences", "test_sequences"):
            check_int(name, getattr(self, name), 1)
        check_int("first_length", self.first_length, 1, self.time_steps)
        check_number("growth", self.growth, 0.0, 1.0)
        for name in self.systems.split(","):
            if name not in SYSTEMS:
                raise unknown("systems", name, SYSTEMS)

    def length_at(self, iteration: int, iterations: int) -> int:
        """Steps of the sequences in this iteration."""
        share = min(1.0, iteration / (self.growth * iterations)) if self.growth else 1.0
        return round(self.first_length * (self.time_steps / self.first_length) ** share)

    def start(self, config: "Config") -> "SystemIdProblem":
        return SystemIdProblem(self, config)


class Learners(nn.Module):
    """An ensemble of W, as ``families`` make them: (E, n, n) in the order of ``families``."""

    def __init__(self, families: dict[str, Parametrization]) -> None:
        super().__init__()
        self.families = nn.ModuleDict(families)

    def forward(self) -> Tensor:
        return torch.cat([family() for family in self.families.values()])


class SystemIdProblem(Problem):
    """System identification in a run. E members: learner by learner, for each its systems, for each its starts."""

    def __init__(self, task: SystemId, config: "Config") -> None:
        super().__init__(config)
        self.task, self.n, self.kinds = task, config.hidden, task.time_steps
        self.learners = config.model.split(",")
        self.systems = task.systems.split(",")
        self._draw()
        sizes = {"train": task.train_sequences, "validation": task.validation_sequences, "test": task.test_sequences}
        self.inputs = {name: self._inputs(name, size) for name, size in sizes.items()}

    def _draw(self) -> None:
        """Systems (S, n, n), starts (starts, n, n) and the bias, in double precision and then in that of the run."""
        source = self.generator("system", self.n)
        n, starts = self.n, self.task.starts
        members = Restricted(n, (3 + starts,), generator=source, device=self.device, dtype=torch.float64)
        W = members().detach()
        self.permutation = members.permutation
        self.first = {name: p.detach()[3:] for name, p in members.named_parameters()}
        drawn = {
            "Wu": W[0],
            "Wg": W[1] @ W[2],
            "haar": haar_unitary(n, generator=source, device=self.device, dtype=torch.complex128),
        }
        bias = torch.rand(n, generator=source, device=self.device, dtype=torch.float64) * 0.02 - 0.11
        self.W_starts, self.bias = W[3:], bias.to(self.dtype)
        self.W_systems = torch.stack([drawn[name] for name in self.systems]).to(self.dtype.to_complex())

    def _inputs(self, name: str, sequences: int) -> Tensor:
        """Circular Gaussian inputs of unit variance, (T, sequences, n); outputs are computed where they are needed."""
        shape = (self.task.time_steps, sequences, self.n)
        source = self.generator(name, self.n)
        return torch.randn(shape, generator=source, device=self.device, dtype=torch.complex64)

    def model(self) -> nn.Module:
        members = len(self.systems) * self.task.starts
        families = {name: self._family(name, members) for name in self.learners}
        return Learners(families)

    def _family(self, name: str, members: int) -> Parametrization:
        """Full and restricted learners start at the same members of W_u, the others at random ones of their own."""
        copies = len(self.systems)
        family = models.family(self.config, name)(self.n, (members,), dtype=self.dtype)
        with torch.no_grad():
            if isinstance(family, Full):
                family.weight.copy_(self.W_starts.repeat(copies, 1, 1))
            elif isinstance(family, Restricted):
                family.permutation.copy_(self.permutation)
                for parameter, values in self.first.items():
                    own = family.get_parameter(parameter)
                    own.copy_(values.repeat(copies, *(1 for _ in values.shape[1:])))
        return family

    def batch(self, iteration: int) -> tuple[Tensor, ...]:
        """Inputs (T, B, n) and the outputs of the systems (T, S, B, n)."""
        length = self.task.length_at(iteration, self.config.max_iterations)
        rows = self.rows_of_epoch(iteration, self.task.train_sequences)
        x = self.inputs["train"][:length].index_select(1, rows).to(self.dtype.to_complex())
        with torch.no_grad():
            return x, self._run(self.W_systems, x)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Sum over the members of their MSE, the mean over steps, rows and the 2 N real outputs."""
        x, y = batch
        return self._errors(model(), x, y).sum() / (2 * x.numel())

    def _errors(self, W: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Sum |y - yhat|^2 of each member, (E,)."""
        T, S, B, n = y.shape
        h = self._run(W, x).view(T, len(self.learners), S, -1, B, n)
        return torch.view_as_real(h - y.view(T, 1, S, 1, B, n)).square().sum((0, 4, 5, 6)).flatten()

    def _run(self, W: Tensor, x: Tensor) -> Tensor:
        """States (T, E, B, n) of the systems W (E, n, n) on common inputs (T, B, n)."""
        members, (T, B, n) = len(W), x.shape
        h_0 = x.new_zeros(members, B, n)
        x = x.unsqueeze(1).expand(T, members, B, n)
        bias = self.bias.expand(members, n)
        h, _ = recurrence(x, None, W, bias, h_0, backend=self.config.backend)
        assert h is not None
        return h

    def evaluate(self, model: nn.Module) -> dict[str, list[float]]:
        """Normalized MSE of each member on the validation and on the test set."""
        return {name: self._normalized_mse(model, name) for name in ("validation", "test")}

    def _normalized_mse(self, model: nn.Module, name: str) -> list[float]:
        """sum |y - yhat|^2 / sum |y|^2 over the whole set, of each member."""
        W: Tensor = model()
        errors = torch.zeros(len(W), dtype=torch.float64, device=self.device)
        powers = errors.new_zeros(len(self.systems))
        for x in self.inputs[name].split(self.config.batch_size, 1):
            x = x.to(self.dtype.to_complex())
            y = self._run(self.W_systems, x)
            errors += self._errors(W, x, y)
            powers += torch.view_as_real(y).square().sum((0, 2, 3, 4))
        shares = errors.view(len(self.learners), len(self.systems), -1) / powers[:, None]
        flat: list[float] = shares.flatten().tolist()
        return flat

    def test(self, model: nn.Module, evaluations: list[dict[str, Any]]) -> dict[str, Any]:
        """For each cell the figures of its initialisations by both rules of selection, best and median of them."""
        final = self._normalized_mse(model, "test")
        history = [*(e["test"] for e in evaluations), final]
        finite = [[value for value in values if math.isfinite(value)] for values in zip(*history, strict=True)]
        lowest = [min(values, default=math.nan) for values in finite]
        cells = {}
        for place, (learner, system) in enumerate((le, s) for le in self.learners for s in self.systems):
            members = slice(place * self.task.starts, (place + 1) * self.task.starts)
            cells[f"{system}/{learner}"] = {
                "best validation": _spread(final[members]),
                "lowest test": _spread(lowest[members]),
            }
        ranks = {learner: self._rank(learner) for learner in self.learners} if self.n <= RANKED else {}
        return {"normalized_mse": cells, "rank": ranks}

    def _rank(self, learner: str) -> int:
        """The dimension of what the learner can represent, measured; U(n) itself needs no measurement."""
        if PARAMETRIZATIONS[learner].direct:
            return self.n**2
        return analyze(models.family(self.config, learner), self.n, points=1, seed=self.config.seed).rank

    def keep(self, best: dict[str, Tensor], model: nn.Module, better: list[bool]) -> None:
        per_learner = len(self.systems) * self.task.starts
        for name, tensor in model.state_dict().items():
            now = tensor.detach().clone()
            learner = next(i for i, one in enumerate(self.learners) if name.startswith(f"families.{one}."))
            if name in best and now.shape[:1] == (per_learner,) and now.is_floating_point() | now.is_complex():
                mask = torch.tensor(better[learner * per_learner : (learner + 1) * per_learner], device=now.device)
                now = torch.where(mask.view(-1, *(1 for _ in now.shape[1:])), now, best[name])
            best[name] = now


def _spread(figures: list[float]) -> dict[str, Any]:
    """All figures, and what a table shows of them."""
    ordered = sorted(figures)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {"best": ordered[0], "median": median, "worst": ordered[-1], "all": figures}

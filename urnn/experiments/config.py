"""The settings of a run: those that every task has, and those of its task; all checked here.

Each setting has one name, whether it is a field of ``Config`` or of the task, and lies at the top level of
``config.json``. ``resolve`` makes a ``Config`` from names and values, ``Config.flat`` goes back.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from urnn._checks import check_choice, check_int, check_number
from urnn.experiments.settings import Setting, check_kinds, parse, setting, settings_of, unknown
from urnn.experiments.tasks import TASKS
from urnn.experiments.tasks.base import Task
from urnn.nn.modrelu import BIAS_CONSTRAINTS
from urnn.nn.recurrent import INITIAL_STATES
from urnn.ops import NONLINEARITIES
from urnn.ops.backends import BACKEND_NAMES
from urnn.optim.base import STEPS
from urnn.optim.rmsprop import SCALINGS
from urnn.parametrizations import PARAMETRIZATIONS

MODELS = (*PARAMETRIZATIONS, "lstm", "gru", "rnn")
OPTIMIZERS = ("rmsprop", "adam", "sgd")
SCHEDULES = ("constant", "cosine", "exponential")
INITIAL_W = ("family", "haar", "restricted", "uniform", "even")


@dataclass(frozen=True)
class Config:
    """Settings that every task has."""

    problem: Task

    recipe: str = setting("best", "best: ours; paper: what the paper and its code did, with the corrected A")
    model: str = setting("full", "kind of model: a family of unitary matrices, or lstm, gru, rnn")
    hidden: int = setting(128, "N, size of the hidden state")
    parameters: int = setting(0, "if not 0, `hidden` is chosen so that the model has about so many parameters")
    num_layers: int = setting(1, "layers, each fed with the states of the one below")
    reflections: int = setting(8, "reflections of the householder family")
    rotations: int = setting(8, "layers of the givens family")
    nonlinearity: str = setting("modrelu", "modrelu (Eq. 2), modrelu_epsilon (the released code's form), or hard")
    initial_state: str = setting("learned", "learned or zero")
    initial_w: str = setting(
        "family", "first W: the family's own, haar, restricted (Eq. 3), or random eigenvectors with eigenphases "
        "uniform or even (equally spaced)"
    )  # fmt: skip
    initial_spread: float = setting(1.0, "eigenphases of initial_w uniform and even lie within +- this times pi")
    bias_init: float = setting(0.0, "middle of the interval from which b is drawn")
    bias_width: float = setting(0.01, "half the width of that interval")
    bias_constraint: str | None = setting(None, "nonpositive keeps b <= 0; none does not")
    half_gradient: bool = setting(False, "give W only the half of its gradient that the released code used")
    backend: str = setting("auto", "how the recurrence is computed")
    dtype: str = setting("float32", "float32 or float64")

    optimizer: str = setting("rmsprop", "rmsprop, adam or sgd, of urnn.optim")
    lr: float = setting(1e-3, "rate of ordinary parameters")
    unitary_lr: float | None = setting(None, "rate of W; none means 0.3 lr (sgd: lr)")
    bias_lr: float | None = setting(None, "rate of b; none means lr")
    unitary_betas: tuple[float, float] | None = setting(
        (0.9, 0.99), "decays of the mean of A and of its mean square; none: no mean (rmsprop)"
    )
    unitary_scaling: str = setting("scalar", "what divides W's gradient: scalar, elementwise (of the paper) or none")
    unitary_step: str = setting("cayley", "cayley (Eq. 6) or exponential")
    polish: bool = setting(True, "one Newton-Schulz step after each move of W")
    alpha: float = setting(0.9, "decay of the mean square (rmsprop)")
    betas: tuple[float, float] = setting((0.9, 0.999), "decays of ordinary parameters (adam)")
    momentum: float = setting(0.0, "momentum (sgd; rmsprop: of ordinary parameters)")
    eps: float = setting(1e-8, "added to the root mean square")
    initial_square_avg: float = setting(0.0, "where the mean squares start (rmsprop)")
    weight_decay: float = setting(0.0, "of ordinary parameters")
    clip_value: float = setting(0.0, "clip each entry of the gradients to +- this; 0 does not")
    clip_norm: float = setting(0.0, "clip the norm of all gradients to this; 0 does not")
    gradient_noise: float = setting(0.0, "deviation of normal noise that is added to each entry of the gradients")
    schedule: str = setting("cosine", "of all rates over the iterations: constant, cosine or exponential")
    warmup: int = setting(0, "iterations over which the rates rise from 0")
    final_lr: float = setting(0.0, "share of the rates at which the schedule ends")

    batch_size: int = setting(20, "sequences in each iteration")
    max_iterations: int = setting(400, "training iterations")
    eval_every: int = setting(0, "iterations between evaluations on validation data; 0: none before the end")
    patience: int = setting(0, "stop after so many evaluations without a better one; 0: never")
    stop_after_solved: int = setting(0, "stop so many iterations after the problem was solved; 0: never")
    log_every: int = setting(10, "iterations between reports; the other intervals must be multiples of it")
    checkpoint_every: int = setting(100, "iterations between checkpoints")
    keep_checkpoints: int = setting(2, "so many of the last checkpoints stay")
    tensorboard: bool = setting(True, "write TensorBoard events, where tensorboard is installed")

    seed: int = setting(0, "of all random numbers")
    device: str = setting("cpu", "cpu or cuda")
    graphs: bool = setting(True, "on a GPU, take steps as CUDA graphs")
    tf32: bool = setting(False, "on a GPU, let products be in TF32: faster at N = 512, and less exact")
    threads: int = setting(0, "CPU threads; 0: as many as PyTorch takes")

    @property
    def task(self) -> str:
        """Name of the task."""
        return next(name for name, cls in TASKS.items() if type(self.problem) is cls)

    def flat(self) -> dict[str, Any]:
        """All settings by name, as ``config.json`` holds them."""
        own = {name: getattr(self, name) for name in settings_of(Config) if name != "problem"}
        return {"task": self.task, **asdict(self.problem), **own}

    def places(self) -> set[str]:
        """Names of the settings that say where something lies, and not what is computed."""
        return {name for name, known in all_settings(self.task).items() if known.place}

    def __post_init__(self) -> None:
        check_kinds(Config, {name: getattr(self, name) for name in settings_of(Config)})
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        families = self.problem.families_alone
        for name in self.model.split(",") if families else (self.model,):
            check_choice("model", name, PARAMETRIZATIONS if families else MODELS)
        if "householder" in self.model.split(",") and not self.parameters:
            check_int("reflections", self.reflections, 1, self.hidden)
        if self.bias_constraint is not None:
            check_choice("bias_constraint", self.bias_constraint, BIAS_CONSTRAINTS)
        for name, low, high in _WHOLE:
            check_int(name, getattr(self, name), low, high)
        for name, lowest in _NUMBERS.items():
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), lowest)
        check_number("alpha", self.alpha, 0.0, 1.0, open_end=True)
        for name in ("betas", "unitary_betas"):
            for beta in getattr(self, name) or ():
                check_number(name, beta, 0.0, 1.0, open_end=True)
        for name in ("eval_every", "checkpoint_every"):
            if getattr(self, name) % self.log_every:
                raise ValueError(
                    f"{name}: expected a multiple of log_every = {self.log_every}, got {getattr(self, name)}"
                )
        if self.patience and not self.eval_every:
            raise ValueError(f"patience: expected 0 with eval_every=0, got {self.patience}. Set eval_every too.")


_CHOICES = {
    "recipe": ("best", "paper"),
    "nonlinearity": NONLINEARITIES,
    "initial_state": INITIAL_STATES,
    "initial_w": INITIAL_W,
    "backend": BACKEND_NAMES,
    "dtype": ("float32", "float64"),
    "optimizer": OPTIMIZERS,
    "unitary_scaling": SCALINGS,
    "unitary_step": STEPS,
    "schedule": SCHEDULES,
}
_WHOLE = (
    *((n, 1, None) for n in ("hidden", "num_layers", "reflections", "rotations", "batch_size", "max_iterations")),
    *((n, 1, None) for n in ("log_every", "checkpoint_every", "keep_checkpoints")),
    *((n, 0, None) for n in ("parameters", "warmup", "eval_every", "patience", "stop_after_solved", "threads")),
    ("seed", 0, 2**63 - 1),
)
_NUMBERS = dict.fromkeys(
    (
        *("lr", "unitary_lr", "bias_lr", "initial_spread", "bias_width", "momentum", "eps", "initial_square_avg"),
        *("weight_decay", "clip_value", "clip_norm", "gradient_noise", "final_lr"),
    ),
    0.0,
)

CHANGEABLE = (
    *("lr", "unitary_lr", "unitary_step", "polish", "alpha", "betas", "eps", "weight_decay", "clip_value", "clip_norm"),
    *("schedule", "warmup", "final_lr", "batch_size", "max_iterations", "eval_every", "patience", "stop_after_solved"),
    *("log_every", "checkpoint_every", "keep_checkpoints", "tensorboard", "backend", "device", "graphs", "threads"),
)
"""What may be another when a run goes on; all else would make another model, or other data."""


def all_settings(task: str) -> dict[str, Setting]:
    """Every setting of ``task``, by name."""
    known = {**settings_of(_task(task)), **settings_of(Config)}
    del known["problem"]
    return known


def resolve(settings: Mapping[str, Any]) -> Config:
    """The settings of a run, complete and checked; what ``settings`` does not name has its default.

    Raises:
        ValueError, TypeError: name the setting, what was expected and what came.

    >>> resolve({"task": "copy", "time_steps": 100}).hidden
    128
    """
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}
    task = settings.pop("task", None)
    cls = _task(task)
    known = all_settings(str(task))
    for name in settings:
        if name not in known:
            raise unknown("--set", name, known)
    own = settings_of(cls)
    values = {name: value for name, value in settings.items() if name in own}
    return Config(cls(**values), **{name: value for name, value in settings.items() if name not in own})


def from_text(task: str, pairs: list[str]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs as settings of ``task``."""
    known, settings = all_settings(task), {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--set: expected KEY=VALUE, got {pair!r}")
        if name not in known:
            raise unknown("--set", name, known)
        settings[name] = parse(name, text, known[name].kind)
    return settings


def _task(name: Any) -> type[Task]:
    if not isinstance(name, str) or name not in TASKS:
        raise unknown("task", str(name), TASKS)
    return TASKS[name]

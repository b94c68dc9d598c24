"""One record per optimizer; the generic tests run over all of them, or over all settings of their unitary side."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import urnn


@dataclasses.dataclass(frozen=True)
class OptimizerCase:
    """What the tests have to know about one optimizer."""

    ours: type
    theirs: type
    ordinary: tuple[dict[str, Any], ...]
    """Options that both take."""
    unitary: tuple[dict[str, Any], ...]
    """Options of the unitary side, with a rate at which the problem of the descent test is solved."""
    bad: tuple[tuple[dict[str, Any], type[Exception], str], ...]
    capturable: bool

    def __str__(self) -> str:
        return self.ours.__name__


SHARED_BAD = (
    ({"unitary_lr": -1.0}, ValueError, r"^unitary_lr: expected a number in \[0.0, inf\), got -1.0$"),
    ({"unitary_lr": "1"}, TypeError, r"^unitary_lr: expected a number, got str"),
    ({"unitary_lr": True}, TypeError, r"^unitary_lr: expected a number, got bool"),
    (
        {"unitary_step": "caley"},
        ValueError,
        r"^unitary_step: expected one of .* got 'caley'\. Did you mean 'cayley'\?$",
    ),
    ({"polish": 1}, TypeError, r"^polish: expected a bool, got int$"),
    ({"differentiable": True}, ValueError, r"^differentiable: expected False with unitary parameters, got True$"),
    (
        {"weight_decay": 0.1},
        ValueError,
        r"^weight_decay: expected 0 in a group of unitary parameters, got 0.1\. A unitary matrix cannot shrink",
    ),
    ({"lr": -1.0}, ValueError, r"Invalid learning rate"),
)
LINE_SEARCH_ALONE = r"^line_search: expected None together with momentum, maximize or unitary_step='exponential'"

CASES = (
    OptimizerCase(
        urnn.optim.SGD,
        torch.optim.SGD,
        ordinary=(
            {},
            {"weight_decay": 0.1},
            {"momentum": 0.9},
            {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1},
            {"momentum": 0.9, "nesterov": True},
            {"maximize": True},
        ),
        unitary=(
            {"lr": 2e-2},
            {"lr": 2e-2, "unitary_step": "exponential"},
            {"lr": 5e-3, "momentum": 0.9},
            {"lr": 5e-3, "momentum": 0.9, "dampening": 0.5},
            {"lr": 5e-3, "momentum": 0.9, "nesterov": True},
        ),
        bad=(
            *SHARED_BAD,
            ({"line_search": "armijo"}, ValueError, r"^line_search: expected one of \['armijo_wolfe'\], got 'armijo'"),
            ({"line_search": "armijo_wolfe", "momentum": 0.9}, ValueError, LINE_SEARCH_ALONE),
            ({"line_search": "armijo_wolfe", "maximize": True}, ValueError, LINE_SEARCH_ALONE),
            ({"line_search": "armijo_wolfe", "unitary_step": "exponential"}, ValueError, LINE_SEARCH_ALONE),
        ),
        capturable=False,
    ),
    OptimizerCase(
        urnn.optim.RMSprop,
        torch.optim.RMSprop,
        ordinary=(
            {},
            {"weight_decay": 0.1},
            {"momentum": 0.9, "alpha": 0.9},
            {"centered": True},
            {"centered": True, "momentum": 0.5, "eps": 1e-3},
            {"maximize": True},
        ),
        unitary=(
            {"lr": 3e-2},
            {"lr": 3e-2, "unitary_step": "exponential"},
            {"lr": 3e-2, "unitary_betas": (0.9, 0.99)},
            {"lr": 3e-2, "unitary_scaling": "elementwise"},
            {"lr": 6e-2, "unitary_scaling": "none"},
        ),
        bad=(
            *SHARED_BAD,
            (
                {"unitary_scaling": "scaler"},
                ValueError,
                r"^unitary_scaling: expected one of .* Did you mean 'scalar'\?$",
            ),
            ({"unitary_betas": 0.9}, TypeError, r"^unitary_betas: expected two numbers, got 0.9$"),
            ({"unitary_betas": (1.0, 0.9)}, ValueError, r"^unitary_betas: expected a number in \[0.0, 1.0\), got 1.0$"),
            (
                {"unitary_betas": (0.9, 0.99), "unitary_scaling": "none"},
                ValueError,
                r"^unitary_betas: expected None with unitary_scaling='none', got \(0.9, 0.99\)$",
            ),
            (
                {"initial_square_avg": -1.0},
                ValueError,
                r"^initial_square_avg: expected a number in \[0.0, inf\), got -1.0$",
            ),
        ),
        capturable=True,
    ),
    OptimizerCase(
        urnn.optim.Adam,
        torch.optim.Adam,
        ordinary=(
            {},
            {"weight_decay": 0.1},
            {"weight_decay": 0.1, "decoupled_weight_decay": True},
            {"amsgrad": True},
            {"betas": (0.8, 0.95), "eps": 1e-3},
            {"maximize": True},
        ),
        unitary=(
            {"lr": 3e-2},
            {"lr": 3e-2, "unitary_step": "exponential"},
            {"lr": 3e-2, "unitary_betas": (0.5, 0.9)},
        ),
        bad=(
            *SHARED_BAD,
            ({"unitary_betas": 0.9}, TypeError, r"^unitary_betas: expected two numbers, got 0.9$"),
            ({"unitary_betas": (0.9,)}, TypeError, r"^unitary_betas: expected two numbers, got \(0.9,\)$"),
            ({"unitary_betas": (0.9, 1.0)}, ValueError, r"^unitary_betas: expected a number in \[0.0, 1.0\), got 1.0$"),
        ),
        capturable=True,
    ),
)


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> OptimizerCase:
    return request.param


@pytest.fixture(params=[(c, o) for c in CASES for o in c.ordinary], ids=lambda p: f"{p[0]}-{p[1]}")
def ordinary(request: pytest.FixtureRequest) -> tuple[OptimizerCase, dict[str, Any]]:
    return request.param


@pytest.fixture(params=[(c, o) for c in CASES for o in c.unitary], ids=lambda p: f"{p[0]}-{p[1]}")
def unitary(request: pytest.FixtureRequest) -> tuple[OptimizerCase, dict[str, Any]]:
    return request.param


@pytest.fixture(params=[(c, *b) for c in CASES for b in c.bad], ids=lambda p: f"{p[0]}-{p[1]}")
def bad(request: pytest.FixtureRequest) -> tuple[OptimizerCase, dict[str, Any], type[Exception], str]:
    return request.param


@pytest.fixture
def new_unitary() -> Callable[..., torch.nn.Parameter]:
    """Make a marked parameter as a user does, through the family ``full``; the values follow the seed."""

    def make(n: int = 5, *batch: int, dtype: torch.dtype = torch.complex128, seed: int = 1) -> torch.nn.Parameter:
        generator = torch.Generator().manual_seed(seed)
        return urnn.parametrizations.Full(n, batch, dtype=dtype, generator=generator).weight

    return make


@pytest.fixture
def drive() -> Callable[..., None]:
    """Take steps along random gradients that depend on the step and the place in the list alone."""

    def run(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor], steps: int = 4, first: int = 0) -> None:
        for step in range(first, first + steps):
            for place, p in enumerate(parameters):
                generator = torch.Generator().manual_seed(1000 * step + place)
                p.grad = torch.randn(p.shape, dtype=p.dtype, generator=generator)
            optimizer.step()

    return run

"""RMSprop: torch's on ordinary parameters, a running RMS of the gradient on unitary ones."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from urnn._checks import check_choice, check_number
from urnn.linalg import lie_gradient
from urnn.optim.base import UnitaryOptimizer
from urnn.optim.moments import check_betas, elementwise_rms, new_moments, normalized

SCALINGS = ("scalar", "elementwise", "none")
PAPER: dict[str, dict[str, Any]] = {
    "copy": {"eps": 0.0, "initial_square_avg": 1e-3, "unitary_scaling": "none", "unitary_lr": 1e-3},
    "speech": {"eps": 0.0, "initial_square_avg": 1e-3, "unitary_scaling": "none", "unitary_lr": 1e-3},
    "mnist": {"eps": 1e-8, "initial_square_avg": 0.0, "unitary_scaling": "elementwise", "unitary_lr": 1e-6},
}


class RMSprop(UnitaryOptimizer, torch.optim.RMSprop):
    """``torch.optim.RMSprop`` whose unitary parameters move along U(n).

    ``RMSprop.paper`` is the released code's optimizer.

    Args:
        params, lr, alpha, eps, weight_decay, momentum, centered, capturable, foreach, maximize, differentiable: as in
            ``torch.optim.RMSprop``. ``weight_decay``, ``momentum`` and ``centered`` work on ordinary parameters alone.
        unitary_lr: rate of the unitary parameters; None means 0.3 ``lr``. It follows later changes of ``lr``.
        unitary_step: ``"cayley"`` (Eq. 6) or ``"exponential"`` (the geodesic).
        unitary_scaling: ``"scalar"`` divides A by one running RMS of its entries (bias-corrected), ``"elementwise"``
            divides the entries of G by theirs before A is formed (the paper's option), ``"none"`` leaves both.
        unitary_betas: with ``"scalar"``, decays of a running mean of A and of its mean square; None means
            (0, ``alpha``), no mean. (0.9, 0.99) is what ``urnn.optim.Adam`` does.
        initial_square_avg: where the mean squares of ordinary and elementwise scaling start (the released code: 1e-3).
        polish: one Newton-Schulz step after each move, without which W drifts off U(n).

    >>> import urnn
    >>> rnn = urnn.UnitaryRNN(10, 16)
    >>> optimizer = RMSprop(rnn.parameters(), lr=1e-3, alpha=0.9, unitary_betas=(0.9, 0.99))
    >>> rnn(torch.randn(5, 2, 10))[0].abs().sum().backward()
    >>> optimizer.step()
    """

    unitary_factor = 0.3

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        *,
        unitary_lr: float | Tensor | None = None,
        unitary_step: str = "cayley",
        unitary_scaling: str = "scalar",
        unitary_betas: tuple[float, float] | None = None,
        initial_square_avg: float = 0.0,
        polish: bool = True,
    ) -> None:
        own = {
            "unitary_lr": unitary_lr,
            "unitary_step": unitary_step,
            "unitary_scaling": unitary_scaling,
            "unitary_betas": unitary_betas,
            "initial_square_avg": initial_square_avg,
            "polish": polish,
        }
        super().__init__(
            params,
            own,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            capturable=capturable,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
        )

    @classmethod
    def paper(cls, params: ParamsT, task: str, lr: float = 1e-3, **changes: Any) -> "RMSprop":
        """The released code's optimizer, with the corrected A: decay 0.9, Cayley step, no polish.

        ``copy`` and ``speech`` start the mean squares at 1e-3 without epsilon and move W by its raw gradient; ``mnist``
        starts at 0 with 1e-8 and divides W's gradient by its elementwise RMS. That code also used but half of W's
        gradient: set ``half_gradient = True`` on the layer for a comparison with it, and for nothing else.

        >>> import urnn
        >>> _ = RMSprop.paper(urnn.UnitaryRNN(10, 8).parameters(), "copy")
        """
        options = PAPER[check_choice("task", task, PAPER)]
        return cls(params, lr=lr, **{"alpha": 0.9, "unitary_step": "cayley", "polish": False, **options, **changes})

    def _check_options(self, options: Mapping[str, Any]) -> None:
        check_choice("unitary_scaling", options["unitary_scaling"], SCALINGS)
        check_number("initial_square_avg", options["initial_square_avg"], 0.0)
        if options["unitary_betas"] is not None:
            check_betas(options["unitary_betas"])
            if options["unitary_scaling"] != "scalar":
                raise ValueError(
                    f"unitary_betas: expected None with unitary_scaling={options['unitary_scaling']!r}, "
                    f"got {options['unitary_betas']}"
                )

    def _init_group(self, group: dict[str, Any], *lists: Any) -> Any:
        fresh = [p for p in group["params"] if not self.state.get(p)]
        result = super()._init_group(group, *lists)
        if group["initial_square_avg"]:
            for p in fresh:
                if "square_avg" in self.state.get(p, {}):
                    _fill(self.state[p]["square_avg"], group["initial_square_avg"])
        return result

    def _remembers(self, group: Mapping[str, Any], state: Mapping[str, Tensor]) -> bool:
        square = state.get("square")
        if group["unitary_scaling"] == "none" or square is None:
            return "step" in state and group["unitary_scaling"] == "none"
        if group["unitary_scaling"] == "elementwise":
            return square.is_complex()
        return not square.is_complex() and ("mean" in state or not self._betas(group)[0])

    def _new_state(self, group: Mapping[str, Any], W: Tensor) -> dict[str, Tensor]:
        if group["unitary_scaling"] == "scalar":
            return new_moments(W, self._betas(group))
        if group["unitary_scaling"] == "elementwise":
            return {"square": _fill(torch.zeros_like(W), group["initial_square_avg"])}
        return {}

    @staticmethod
    def _betas(group: Mapping[str, Any]) -> tuple[float, float]:
        betas: tuple[float, float] = group["unitary_betas"] or (0.0, group["alpha"])
        return betas

    def _direction(
        self, group: Mapping[str, Any], W: Tensor, G: Tensor, state: dict[str, Tensor], step: float | Tensor
    ) -> Tensor:
        if group["unitary_scaling"] == "elementwise":
            G = elementwise_rms(G, state["square"], group["alpha"], group["eps"])
        A = lie_gradient(W, G)
        return normalized(A, state, self._betas(group), step) if group["unitary_scaling"] == "scalar" else A


def _fill(square: Tensor, value: float) -> Tensor:
    """Set the mean squares, those of Re and of Im, to ``value``."""
    (torch.view_as_real(square) if square.is_complex() else square).fill_(value)
    return square

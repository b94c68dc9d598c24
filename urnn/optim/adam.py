"""Adam: torch's on ordinary parameters, momentum and one RMS in the Lie algebra on unitary ones."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from urnn.linalg import lie_gradient
from urnn.optim.base import UnitaryOptimizer
from urnn.optim.moments import check_betas, new_moments, normalized


class Adam(UnitaryOptimizer, torch.optim.Adam):
    r"""``torch.optim.Adam`` whose unitary parameters move along U(n). The optimizer to start with.

    On U(n) the direction is the running mean of A over the running root mean square of its entries, one number for
    each matrix, both bias-corrected. An elementwise scale would not commute with a change of basis; one number does.

    Args:
        params, lr, betas, eps, weight_decay, amsgrad, foreach, maximize, capturable, differentiable, fused,
            decoupled_weight_decay: as in ``torch.optim.Adam``. ``weight_decay`` works on ordinary parameters alone.
        unitary_lr: rate of the unitary parameters; None means 0.3 ``lr``. It follows later changes of ``lr``.
        unitary_betas: decay of the mean of A and of its mean square.
        unitary_step: ``"cayley"`` (Eq. 6) or ``"exponential"`` (the geodesic).
        polish: one Newton-Schulz step after each move, without which W drifts off U(n).

    >>> import urnn
    >>> rnn = urnn.UnitaryRNN(10, 16)
    >>> optimizer = Adam(rnn.parameters(), lr=1e-3)
    >>> rnn(torch.randn(5, 2, 10))[0].abs().sum().backward()
    >>> optimizer.step()
    """

    unitary_factor = 0.3

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        unitary_lr: float | Tensor | None = None,
        unitary_betas: tuple[float, float] = (0.9, 0.99),
        unitary_step: str = "cayley",
        polish: bool = True,
    ) -> None:
        own = {"unitary_lr": unitary_lr, "unitary_betas": unitary_betas, "unitary_step": unitary_step, "polish": polish}
        super().__init__(
            params,
            own,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=decoupled_weight_decay,
        )

    def _check_options(self, options: Mapping[str, Any]) -> None:
        check_betas(options["unitary_betas"])

    def _remembers(self, group: Mapping[str, Any], state: Mapping[str, Tensor]) -> bool:
        return "square" in state and ("mean" in state or not group["unitary_betas"][0])

    def _new_state(self, group: Mapping[str, Any], W: Tensor) -> dict[str, Tensor]:
        return new_moments(W, group["unitary_betas"])

    def _direction(
        self, group: Mapping[str, Any], W: Tensor, G: Tensor, state: dict[str, Tensor], step: float | Tensor
    ) -> Tensor:
        return normalized(lie_gradient(W, G), state, group["unitary_betas"], step)

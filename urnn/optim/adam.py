"""Adam: torch's on ordinary parameters, momentum and one RMS in the Lie algebra on unitary ones."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from urnn._checks import check_number
from urnn.linalg import lie_gradient
from urnn.optim.base import UnitaryOptimizer
from urnn.optim.moments import momentum, scalar_rms


class Adam(UnitaryOptimizer, torch.optim.Adam):
    r"""``torch.optim.Adam`` whose unitary parameters move along U(n). The optimizer to start with.

    On U(n) the direction is the running mean of A over the running root mean square of its entries, one number for
    each matrix, both bias-corrected. An elementwise scale would not commute with a change of basis; one number does.

    Args:
        params, lr, betas, eps, weight_decay, amsgrad, foreach, maximize, capturable, differentiable, fused,
            decoupled_weight_decay: as in ``torch.optim.Adam``. ``weight_decay`` works on ordinary parameters alone.
        unitary_lr: rate of the unitary parameters; None means 0.3 ``lr``. A scheduler scales it along with ``lr``.
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
        betas = options["unitary_betas"]
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise TypeError(f"unitary_betas: expected two numbers, got {betas!r}")
        for beta in betas:
            check_number("unitary_betas", beta, 0.0, 1.0, open_end=True)

    def _new_state(self, group: Mapping[str, Any], W: Tensor) -> dict[str, Tensor]:
        return {"momentum": torch.zeros_like(W), "square": W.real.new_zeros(W.shape[:-2])}

    def _direction(
        self, group: Mapping[str, Any], W: Tensor, G: Tensor, state: dict[str, Tensor], step: float | Tensor
    ) -> Tensor:
        beta_1, beta_2 = group["unitary_betas"]
        A = lie_gradient(W, G)
        return momentum(A, state["momentum"], beta_1, step) / scalar_rms(A, state["square"], beta_2, step)

"""Stochastic gradient descent: the paper's fixed rate, momentum in the Lie algebra, and a search along the curve."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from urnn._checks import check_choice
from urnn._module import is_unitary
from urnn.linalg import lie_gradient
from urnn.optim.base import Closure, UnitaryOptimizer
from urnn.optim.line_search import LINE_SEARCHES, search


class SGD(UnitaryOptimizer, torch.optim.SGD):
    r"""``torch.optim.SGD`` whose unitary parameters move along U(n) by Eq. 6.

    With the defaults the step is the paper's, :math:`A = G W^H - W G^H` at a fixed rate. ``momentum``, ``dampening``
    and ``nesterov`` work on A as torch's work on a gradient. See ``docs/equations.md`` for the erratum of Eq. 6.

    Args:
        params, lr, momentum, dampening, weight_decay, nesterov, maximize, foreach, differentiable, fused: as in
            ``torch.optim.SGD``. ``weight_decay`` works on ordinary parameters alone.
        unitary_lr: rate of the unitary parameters; None means ``lr``. It follows later changes of ``lr``.
        unitary_step: ``"cayley"`` (Eq. 6) or ``"exponential"`` (the geodesic).
        line_search: None, or ``"armijo_wolfe"``: search the rate of the unitary parameters along the Cayley curve
            (Tagare 2011). ``step`` then needs a closure and calls it several times.
        polish: one Newton-Schulz step after each move, without which W drifts off U(n).

    >>> import urnn
    >>> W = urnn.unitary(torch.nn.Linear(8, 8, bias=False, dtype=torch.complex64))
    >>> optimizer = SGD(W.parameters(), lr=0.1, momentum=0.9)
    >>> W(torch.ones(8, dtype=torch.complex64)).real.sum().backward()
    >>> _ = optimizer.step()
    """

    unitary_factor = 1.0

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        unitary_lr: float | Tensor | None = None,
        unitary_step: str = "cayley",
        line_search: str | None = None,
        polish: bool = True,
    ) -> None:
        own = {"unitary_lr": unitary_lr, "unitary_step": unitary_step, "line_search": line_search, "polish": polish}
        super().__init__(
            params,
            own,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
            foreach=foreach,
            differentiable=differentiable,
            fused=fused,
        )

    def _check_options(self, options: Mapping[str, Any]) -> None:
        if options["line_search"] is None:
            return
        check_choice("line_search", options["line_search"], LINE_SEARCHES)
        if options["momentum"] or options["unitary_step"] != "cayley" or options["maximize"]:
            raise ValueError(
                "line_search: expected None together with momentum, maximize or unitary_step='exponential', "
                f"got {options['line_search']!r}. It searches along the Cayley curve of the gradient, downhill."
            )

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Take one step. ``closure`` evaluates the model anew and returns the loss; a line search needs it."""
        searched = [group for group in self.param_groups if group["line_search"]]
        if not searched:
            return super().step(closure)
        if closure is None:
            raise ValueError(
                "closure: expected a callable, as line_search='armijo_wolfe' evaluates the model, got None"
            )
        with torch.enable_grad():
            loss = closure()
        starts = [
            (p, self._rate(group))
            for group in searched
            for p in group["params"]
            if is_unitary(p) and p.grad is not None
        ]
        search(starts, loss, closure)  # leaves the gradients of the accepted point
        self._step_ordinary()
        self._step_unitary()  # of the groups without a search
        return loss

    def _step_ordinary(self) -> None:
        """Also at a rate that is a tensor, which torch's code would read: of a step at rate 1 that part is taken.

        What torch's SGD keeps in its state does not depend on the rate.
        """
        groups = [group for group in self.param_groups if isinstance(group["lr"], Tensor)]
        rates = [group["lr"] for group in groups]
        ordinary = [[p for p in g["params"] if p.grad is not None and not is_unitary(p)] for g in groups]
        starts = [[p.clone() for p in parameters] for parameters in ordinary]
        for group in groups:
            group["lr"] = 1.0
        try:
            super()._step_ordinary()
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate
        for rate, parameters, before in zip(rates, ordinary, starts, strict=True):
            for p, start in zip(parameters, before, strict=True):
                p.sub_(start).mul_(rate).add_(start)

    def _buckets(self, group: Mapping[str, Any]) -> list[list[Tensor]]:
        return [] if group["line_search"] else super()._buckets(group)

    def _remembers(self, group: Mapping[str, Any], state: Mapping[str, Tensor]) -> bool:
        return "step" in state and ("momentum" in state or not group["momentum"])

    def _new_state(self, group: Mapping[str, Any], W: Tensor) -> dict[str, Tensor]:
        return {"momentum": torch.zeros_like(W)} if group["momentum"] else {}

    def _direction(
        self, group: Mapping[str, Any], W: Tensor, G: Tensor, state: dict[str, Tensor], step: float | Tensor
    ) -> Tensor:
        A = lie_gradient(W, G)
        if not group["momentum"]:
            return A
        buffer = state["momentum"].mul_(group["momentum"]).add_(A, alpha=1 - group["dampening"])
        return A + group["momentum"] * buffer if group["nesterov"] else buffer

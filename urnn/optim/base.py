"""What the three optimizers share: which parameters are unitary, and how those move.

Note [Two kinds of parameters]
An optimizer of this package takes any parameters. Those without the mark of a unitary parameter are handed to
torch.optim's own step, in the groups that they are in. Those with the mark move along U(n): the class says in which
direction of the Lie algebra (``_direction``), the group says how (Cayley or exponential step, rate, polish). The mark
is read at each step and not at construction.

Note [Steps that are too long for a CUDA graph]
On a GPU the Cayley step consists of products, as many as its length asks for, and of a solve where it is too long. In a
CUDA graph their number is fixed. There a matrix whose step turns out too long stays where it is and is counted, on the
device: ``failed_steps``. Its moments have taken in the gradient all the same. NaN is not skipped: it reaches W.

Note [Rates]
``unitary_lr=None`` follows the group's ``lr``. A number is the rate that goes with the ``lr`` at which the group was
added: whatever changes ``lr`` afterwards, a scheduler or a line of the training loop, scales it in proportion.
"""

from collections.abc import Callable, Mapping
from inspect import unwrap
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from urnn._checks import check_choice, check_number
from urnn._module import is_unitary, mark_unitary
from urnn.linalg import (
    captured_cayley_step,
    cayley_step,
    cayley_step_by_products,
    exponential_step,
    full_precision,
    newton_schulz,
)

STEPS: dict[str, Callable[..., Tensor]] = {"cayley": cayley_step, "exponential": exponential_step}
Closure = Callable[[], float]


class UnitaryOptimizer(torch.optim.Optimizer):
    """Mix-in in front of a class of torch.optim."""

    unitary_factor: ClassVar[float]
    """``unitary_lr=None`` means this times ``lr``."""

    def _direction(
        self, group: Mapping[str, Any], W: Tensor, G: Tensor, state: dict[str, Tensor], step: float | Tensor
    ) -> Tensor:
        """The skew-Hermitian direction to move against. Updates ``state`` in place.

        All tensors are (E, n, n) or (E,). ``step`` counts this step already; it is a tensor (E,) where the group is
        ``capturable`` and a number elsewhere.
        """
        raise NotImplementedError

    def _new_state(self, group: Mapping[str, Any], W: Tensor) -> dict[str, Tensor]:
        """What ``_direction`` remembers of one parameter, with the leading dimensions of ``W``."""
        raise NotImplementedError

    def __init__(self, params: ParamsT, own: dict[str, Any], **options: Any) -> None:
        """Make torch.optim's optimizer with ``options``; ``own`` are the defaults that this package adds."""
        self._own_defaults = own
        super().__init__(params, **options)

    def _remembers(self, group: Mapping[str, Any], state: Mapping[str, Tensor]) -> bool:
        """Whether ``state`` is what ``_new_state`` makes for these options, which may have changed since."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch.optim's, with the options of unitary parameters checked first."""
        self.defaults.update(self.__dict__.pop("_own_defaults", {}))
        options = {**self.defaults, **param_group}
        if options["unitary_lr"] is not None:
            check_number("unitary_lr", options["unitary_lr"], 0.0)
        check_choice("unitary_step", options["unitary_step"], STEPS)
        if not isinstance(options["polish"], bool):
            raise TypeError(f"polish: expected a bool, got {type(options['polish']).__name__}")
        self._check_options(options)
        super().add_param_group(param_group)
        lr = self.param_groups[-1]["lr"]
        self.param_groups[-1].setdefault("reference_lr", lr.clone() if isinstance(lr, Tensor) else lr)
        unitary = [p for p in self.param_groups[-1]["params"] if is_unitary(p)]
        fault = None
        if unitary and len(unitary) == len(self.param_groups[-1]["params"]) and param_group.get("weight_decay"):
            fault = (
                f"weight_decay: expected 0 in a group of unitary parameters, got {param_group['weight_decay']}. "
                "A unitary matrix cannot shrink; set it in the groups of the other parameters."
            )
        if unitary and options.get("differentiable"):
            fault = "differentiable: expected False with unitary parameters, got True"
        if fault:
            self.param_groups.pop()
            raise ValueError(fault)

    def _check_options(self, options: Mapping[str, Any]) -> None:
        """Check what a class adds."""

    def __getstate__(self) -> dict[str, Any]:
        """As torch.optim's, with the marks: a copied optimizer has copied parameters, and copying drops their marks."""
        marks = [[is_unitary(p) for p in group["params"]] for group in self.param_groups]
        return {**super().__getstate__(), "_marks": marks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        marks = state.pop("_marks", [])  # load_state_dict comes here without
        super().__setstate__(state)
        for group in self.param_groups:  # a state of torch.optim's own class has none of ours
            for name, default in self.defaults.items():
                group.setdefault(name, default)
            group.setdefault("reference_lr", group["lr"])
        for group, flags in zip(self.param_groups, marks, strict=False):
            for p, flag in zip(group["params"], flags, strict=True):
                if flag:
                    mark_unitary(p)

    def _init_group(self, group: dict[str, Any], *lists: Any) -> Any:
        """torch.optim's gathering of parameters and state, for the ordinary parameters alone."""
        ordinary = [p for p in group["params"] if not is_unitary(p)]
        for p in ordinary:  # autograd may leave a conjugation pending, on which torch.optim's arithmetic stops
            if p.grad is not None and p.grad.is_conj():
                p.grad = p.grad.resolve_conj()
        return super()._init_group({**group, "params": ordinary}, *lists)  # type: ignore[misc]

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Take one step. ``closure`` evaluates the model anew and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_ordinary()
        self._step_unitary()
        return loss

    def failed_steps(self) -> Tensor:
        """How many steps in CUDA graphs left their matrix where it was, as they were too long: an integer tensor.

        It lies on the device of the unitary parameters; ``int`` waits for it. Where it grows the rate is too high:
        lower ``unitary_lr``, or do not capture the step. Outside of graphs no step fails.
        """
        counts = [state["failed"].sum() for state in self.state.values() if "failed" in state]
        return torch.stack([count.to(counts[0].device) for count in counts]).sum() if counts else torch.tensor(0)

    def _step_ordinary(self) -> None:
        """torch.optim's own step. Its profiling wrapper is left out: it would run the hooks of this optimizer twice."""
        step = super().step.__func__  # type: ignore[attr-defined]
        unwrap(step, stop=lambda f: not getattr(f, "hooked", False))(self)

    def _step_unitary(self) -> None:
        for group in self.param_groups:
            for bucket in self._buckets(group):
                self._move(group, bucket)

    def _buckets(self, group: Mapping[str, Any]) -> list[list[Tensor]]:
        """Unitary parameters that have a gradient; those of one size, type, device and age together."""
        buckets: dict[tuple[Any, ...], list[Tensor]] = {}
        for p in group["params"]:
            if p.grad is None or not is_unitary(p):
                continue
            state = self.state[p]
            if not self._remembers(group, state):
                state.clear()  # torch.optim's own convention: the count lies on the CPU, except for CUDA graphs
                device = p.device if group.get("capturable") else "cpu"
                state.update(step=torch.zeros((), device=device), **self._new_state(group, p))
            if "failed" not in state:
                state["failed"] = torch.zeros(p.shape[:-2], dtype=torch.int64, device=p.device)
            age = None if group.get("capturable") else int(state["step"])
            buckets.setdefault((p.shape[-1], p.dim(), p.dtype, p.device, age), []).append(p)
        return list(buckets.values())

    def _count(self, group: Mapping[str, Any], parameters: list[Tensor]) -> float | Tensor:
        """Count this step, and say which one it is."""
        steps = [self.state[p]["step"].add_(1) for p in parameters]
        if not group.get("capturable"):
            return float(steps[0])
        if len(steps) == 1:
            return steps[0].expand(parameters[0].shape[:-2].numel())
        return torch.cat([step.expand(p.shape[:-2].numel()) for step, p in zip(steps, parameters, strict=True)])

    def _move(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        """Move parameters of one size together, as one batch of matrices."""
        step = self._count(group, parameters)
        leading = parameters[0].dim() - 2
        remembered = self.state[parameters[0]].keys() - {"step", "failed"}
        kept = {key: [self.state[p][key] for p in parameters] for key in sorted(remembered)}
        state = {key: _merge(tensors, tensors[0].dim() - leading) for key, tensors in kept.items()}
        W = _merge(parameters, 2)
        G = _merge([p.grad for p in parameters if p.grad is not None], 2)
        with full_precision():
            A = self._direction(group, W, -G if group.get("maximize") else G, state, step)
            moved, failed = _moved(group["unitary_step"], W, A, self._rate(group))
            if group["polish"]:
                moved = newton_schulz(moved)
        if failed is not None:
            moved = torch.where(failed[:, None, None], W, moved, out=W)
            sizes = [p.shape[:-2].numel() for p in parameters]
            for p, fresh in zip(parameters, failed.split(sizes), strict=True):
                self.state[p]["failed"].add_(fresh.view(p.shape[:-2]))
        _split(moved, parameters)
        for key, tensors in kept.items():
            _split(state[key], tensors)

    def _rate(self, group: Mapping[str, Any]) -> float | Tensor:
        """The rate of the unitary parameters; see Note [Rates]."""
        if group["unitary_lr"] is None:
            rate: float | Tensor = self.unitary_factor * group["lr"]
            return rate
        if isinstance(group["reference_lr"], Tensor) or group["reference_lr"]:
            scaled: float | Tensor = group["unitary_lr"] * (group["lr"] / group["reference_lr"])
            return scaled
        constant: float | Tensor = group["unitary_lr"]
        return constant


def _moved(kind: str, W: Tensor, A: Tensor, rate: float | Tensor) -> tuple[Tensor, Tensor | None]:
    """``W`` after the step and, in a CUDA graph, for which matrices it was too long."""
    if kind == "cayley" and _capturing(W):
        return captured_cayley_step(W, A, rate)
    if kind == "cayley" and W.is_cuda:  # on a CPU the solve is fast enough
        moved = cayley_step_by_products(W, A, rate)
        if moved is not None:
            return moved, None
    return STEPS[kind](W, A, rate), None


def _capturing(W: Tensor) -> bool:
    return W.is_cuda and torch.cuda.is_current_stream_capturing()


def _merge(tensors: list[Tensor], inner: int) -> Tensor:
    """Tensors (..., <inner dimensions>) as one (E, <inner dimensions>); a view where there is but one."""
    flat = [t.reshape(-1, *t.shape[t.dim() - inner :]) for t in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _split(merged: Tensor, tensors: list[Tensor]) -> None:
    """Write ``merged`` back to what ``_merge`` made it of."""
    if len(tensors) == 1 and merged.data_ptr() == tensors[0].data_ptr():
        return  # a view that was changed in place
    start = 0
    for t in tensors:
        size = t.numel() // max(merged[0].numel(), 1) if merged.dim() > 1 else t.numel()
        t.copy_(merged[start : start + size].view_as(t))
        start += size

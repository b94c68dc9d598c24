"""Families of unitary matrices behind one contract (``base.py``); the table names them."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from urnn._checks import check_choice
from urnn.parametrizations.attach import attach, find_weight
from urnn.parametrizations.base import Parametrization
from urnn.parametrizations.cayley import Cayley
from urnn.parametrizations.direct import Full
from urnn.parametrizations.exponential import Exponential
from urnn.parametrizations.givens import Givens
from urnn.parametrizations.householder import Householder
from urnn.parametrizations.restricted import Restricted

M = TypeVar("M", bound=nn.Module)

PARAMETRIZATIONS: dict[str, type[Parametrization]] = {
    "full": Full,
    "restricted": Restricted,
    "householder": Householder,
    "givens": Givens,
    "exponential": Exponential,
    "cayley": Cayley,
}


def build(
    family: str | Callable[..., Parametrization],
    n: int,
    batch_shape: tuple[int, ...] = (),
    *,
    argument: str = "parametrization",
    **options: Any,
) -> Parametrization:
    """Make a family from its name in the table, or from a class or partial of the same signature.

    ``argument`` is what the caller calls it, for errors.

    >>> build("householder", 8, reflections=2)
    Householder(8, reflections=2)
    """
    if callable(family):
        made = family(n, batch_shape, **options)
        if not isinstance(made, Parametrization):
            raise TypeError(f"{argument}: expected a callable that makes a Parametrization, got {type(made).__name__}")
        return made
    make = PARAMETRIZATIONS[check_choice(argument, family, PARAMETRIZATIONS)]
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            raise TypeError(f"{option}: expected an option of {family!r}, one of {sorted(set(known) - _SHARED)}")
    return make(n, batch_shape, **options)


def unitary(
    module: M, name: str = "weight", family: str | Callable[..., Parametrization] = "full", **options: Any
) -> M:
    """Keep a square complex weight of ``module`` unitary, as torch's ``parametrizations.orthogonal`` a real one.

    With ``family="full"`` the weight stays the parameter that it is and is marked for the optimizers of ``urnn.optim``.
    All other families replace it by their own parameters, which any optimizer may train. A weight that is a member
    already stays; any other starts at a random member.

    Args:
        module: the module; changed in place.
        name: name of its weight, complex (..., n, n).
        family: a name in ``PARAMETRIZATIONS``, or a class or partial of the same signature.
        **options: of the family, such as ``reflections=8``.

    >>> import torch
    >>> layer = unitary(nn.Linear(8, 8, dtype=torch.complex64), family="householder", reflections=2)
    >>> layer(torch.ones(3, 8, dtype=torch.complex64)).shape
    torch.Size([3, 8])
    """
    weight = find_weight(module, name)
    made = build(
        family, weight.shape[-1], tuple(weight.shape[:-2]), dtype=weight.dtype, device=weight.device, **options
    )
    attach(made, module, name, weight)
    return module


_SHARED = {"n", "batch_shape", "generator", "device", "dtype"}

__all__ = [
    "PARAMETRIZATIONS",
    "Cayley",
    "Exponential",
    "Full",
    "Givens",
    "Householder",
    "Parametrization",
    "Restricted",
    "build",
    "unitary",
]

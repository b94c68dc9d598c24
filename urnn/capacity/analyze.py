"""The question whether a family represents every unitary matrix, and if not, how much of U(n)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from urnn._checks import check_choice, check_int, check_shape, check_tensor
from urnn._typing import Square
from urnn.capacity.count import counting_verdict, unitary_dimension
from urnn.capacity.fit import inverts, share_reached
from urnn.capacity.rank import Rank, jacobian_rank
from urnn.parametrizations import Parametrization, build

Full = Literal["yes", "locally", False]
SETTINGS = {"householder": "reflections", "givens": "layers"}
"""The option of each tunable family that sets its capacity."""


@dataclass(frozen=True)
class Capacity:
    """What is known of one family at one n.

    ``full`` is ``"yes"`` where a right inverse hits every target, ``"locally"`` where the rank alone says so (the image
    holds an open set of U(n), but perhaps not all of it), and False where the rank is short of n^2.
    """

    parameters: int
    rank: int
    dimension: int
    full: Full
    full_by_counting: bool | None = field(repr=False)
    """False where P < n^2 (Theorem 3.2); None where counting cannot tell."""
    smallest_kept: float = field(repr=False)
    """Smallest singular value of the Jacobian that counts, relative to the largest."""
    largest_dropped: float = field(repr=False)
    """Largest one that counts as zero; the gap between the two justifies the rank."""
    family: str = field(repr=False)
    n: int = field(repr=False)
    options: dict[str, Any] = field(repr=False, default_factory=dict)
    reached: float | None = field(repr=False, default=None)
    """Share of Haar targets that a fit reached, where asked for."""

    @property
    def redundant(self) -> int:
        """Parameters beyond the rank: directions in which W does not move."""
        return self.parameters - self.rank


def analyze(
    family: str | Callable[..., Any],
    n: int,
    *,
    parameters: int | None = None,
    points: int = 3,
    targets: int = 0,
    seed: int = 0,
    **options: Any,
) -> Capacity:
    """Analyse a family at size n.

    Args:
        family: a name in ``urnn.PARAMETRIZATIONS``, a class or partial of ``Parametrization``, or, with ``parameters``
            given, any smooth function of a real float64 vector that gives a unitary complex128 (n, n) matrix.
        n: size of the matrices.
        parameters: length of the vector, for a plain function.
        points: random points at which the rank is taken; the largest counts.
        targets: number of Haar matrices to fit, 0 for none. Takes seconds to minutes.
        seed: of all random numbers.
        **options: of the family, such as ``reflections=8``.

    >>> analyze("restricted", n=7)
    Capacity(parameters=49, rank=42, dimension=49, full=False)
    """
    dimension = unitary_dimension(n)
    for fixed in ("batch_shape", "device", "dtype", "generator"):
        if fixed in options:
            raise TypeError(f"{fixed}: expected an option of the family, got one that the analysis sets itself")
    check_int("points", points, 1)
    check_int("targets", targets, 0)
    generator = torch.Generator().manual_seed(seed)
    if parameters is not None:
        return _of_function(family, n, check_int("parameters", parameters, 0), points, targets, generator, options)
    made = build(family, n, argument="family", dtype=torch.complex128, generator=generator, **options)
    onto = inverts(made, 5, generator)
    ranks = (
        [jacobian_rank(made.chart()[1], made.chart()[0])] if onto else []
    )  # a Haar matrix is a well-conditioned point
    for _ in range(points - len(ranks)):
        made.reset_parameters(generator)
        ranks.append(jacobian_rank(made.chart()[1], _random_point(made, generator)))
    best = max(ranks)
    full: Full = "yes" if onto else "locally" if best.rank == dimension else False
    reached = share_reached(made, targets, generator) if targets else None
    name = family if isinstance(family, str) else type(made).__name__
    return _result(made.num_real_params, best, full, name, n, {**dict(made.options())}, reached)


def smallest_full(family: str, n: int, limit: int | None = None, **options: Any) -> int | None:
    """The smallest number of reflections (or layers) at which a tunable family is full, or None up to ``limit``.

    >>> smallest_full("givens", 4)
    4
    """
    setting = SETTINGS[check_choice("family", family, SETTINGS)]
    if setting in options:
        raise ValueError(f"{setting}: expected none, as that is what is searched for, got {options[setting]!r}")
    for value in range(1, (limit if limit is not None else n) + 1):
        if analyze(family, n, points=2, **{setting: value, **options}).full:
            return value
    return None


def _of_function(
    family: object, n: int, parameters: int, points: int, targets: int, generator: Generator, options: dict[str, Any]
) -> Capacity:
    if not callable(family):
        raise TypeError(
            f"family: expected a callable of a real vector, as parameters={parameters} is given, got {family!r}"
        )
    if targets:
        raise ValueError(f"targets: expected 0 for a plain function, got {targets}")

    def to_matrix(theta: Tensor) -> Square:
        W = check_tensor("family", family(theta, **options))
        check_shape("family", W, (n, n))
        return W

    random = (torch.randn(parameters, dtype=torch.float64, generator=generator) for _ in range(points))
    best = max(jacobian_rank(to_matrix, point) for point in random)
    full: Full = "locally" if best.rank == unitary_dimension(n) else False
    return _result(parameters, best, full, getattr(family, "__name__", "function"), n, options, None)


def _result(
    parameters: int, rank: Rank, full: Full, family: str, n: int, options: dict[str, Any], reached: float | None
) -> Capacity:
    return Capacity(
        parameters=parameters,
        rank=rank.rank,
        dimension=unitary_dimension(n),
        full=full,
        full_by_counting=counting_verdict(parameters, n),
        smallest_kept=rank.smallest_kept,
        largest_dropped=rank.largest_dropped,
        family=family,
        n=n,
        options=options,
        reached=reached,
    )


def _random_point(made: Parametrization, generator: Generator) -> Tensor:
    """A generic point of the chart: families whose start is special (coordinates 0) are moved away from it."""
    theta, _ = made.chart()
    return theta + 0.1 * torch.randn(theta.shape, dtype=theta.dtype, generator=generator)

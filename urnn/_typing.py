"""Shape aliases, one place for all of them. ``*batch`` and ``ensemble`` may be empty or any size.

With jaxtyping installed (extra ``dev``) they are checked in a test job of their own; without it they mean ``Tensor``.
"""

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Complex, Float, Int, Shaped
else:
    try:
        from jaxtyping import Complex, Float, Int, Shaped
    except ModuleNotFoundError:

        class _Unchecked:
            def __class_getitem__(cls, item: tuple[type, str]) -> type:
                return item[0]

        Complex = Float = Int = Shaped = _Unchecked

Square = Complex[Tensor, "*batch n n"]
"""A (batch of) complex square matrices; unitary where the text says so."""
RealSquare = Float[Tensor, "*batch n n"]
"""Real square matrices."""
Vectors = Complex[Tensor, "*#batch n"]
"""Complex vectors along the last dimension; leading dimensions broadcast."""
Reals = Float[Tensor, "*#batch n"]
"""Real vectors along the last dimension; leading dimensions broadcast."""
Scalars = Float[Tensor, "*batch"]
"""One real number for each member of the batch."""

Steps = Complex[Tensor, "time ensemble rows n"]
"""Pre-activations or states of the recurrence."""
Inputs = Shaped[Tensor, "time ensemble rows m"]
"""Inputs of the recurrence, real or complex, before their projection."""
Matrices = Complex[Tensor, "ensemble n n"]
"""Recurrence matrices, one for each member of the ensemble."""
Projections = Complex[Tensor, "ensemble n m"]
"""Input matrices, one for each member of the ensemble."""
Biases = Float[Tensor, "ensemble n"]
"""Biases of the nonlinearity, one row for each member of the ensemble."""
States = Complex[Tensor, "ensemble rows n"]
"""One state for each row of the batch and each member of the ensemble."""
Entering = Complex[Tensor, "segments ensemble rows n"]
"""The states that enter each segment of a sequence."""
Lengths = Int[Tensor, "ensemble rows"]
"""Valid steps of each row of the batch."""

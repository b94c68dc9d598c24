"""Pure functions of tensors for unitary matrices; no Module, no state."""

from urnn.linalg.cayley import captured_cayley_step, cayley_step_by_products
from urnn.linalg.precision import full_precision
from urnn.linalg.stiefel import (
    cayley_step,
    exponential,
    exponential_step,
    lie_gradient,
    newton_schulz,
    reals_from_skew,
    skew,
    skew_from_reals,
    tangent_projection,
)
from urnn.linalg.unitary import (
    check_unitary_matrix,
    haar_unitary,
    is_unitary_matrix,
    nearest_unitary,
    unitarity_defect,
    unitarity_tol,
    unitary_eig,
)

__all__ = [
    "captured_cayley_step",
    "cayley_step",
    "cayley_step_by_products",
    "check_unitary_matrix",
    "exponential",
    "exponential_step",
    "full_precision",
    "haar_unitary",
    "is_unitary_matrix",
    "lie_gradient",
    "nearest_unitary",
    "newton_schulz",
    "reals_from_skew",
    "skew",
    "skew_from_reals",
    "tangent_projection",
    "unitarity_defect",
    "unitarity_tol",
    "unitary_eig",
]

"""The capacity analyser: how much of U(n) a family of unitary matrices can represent."""

from urnn.capacity.analyze import SETTINGS, Capacity, analyze, smallest_full
from urnn.capacity.count import counting_verdict, unitary_dimension
from urnn.capacity.rank import jacobian_rank

__all__ = [
    "SETTINGS",
    "Capacity",
    "analyze",
    "counting_verdict",
    "jacobian_rank",
    "smallest_full",
    "unitary_dimension",
]

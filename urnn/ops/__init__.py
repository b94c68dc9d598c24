"""The recurrence h_t = sigma_b(W h_{t-1} + V x_t): one operation, several backends."""

from urnn.ops.backends import BACKEND_NAMES, BACKENDS, Backend, Problem, check_backend
from urnn.ops.nonlinearity import NONLINEARITIES
from urnn.ops.recurrence import recurrence
from urnn.ops.segments import check_checkpoint

__all__ = [
    "BACKENDS",
    "BACKEND_NAMES",
    "NONLINEARITIES",
    "Backend",
    "Problem",
    "check_backend",
    "check_checkpoint",
    "recurrence",
]

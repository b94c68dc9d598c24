"""Tasks; the table names them."""

from urnn.experiments.tasks.copy import Copy

TASKS = {"copy": Copy}

__all__ = ["TASKS", "Copy"]

"""Tasks; the table names them."""

from urnn.experiments.tasks.base import Problem, Task
from urnn.experiments.tasks.copy import Copy
from urnn.experiments.tasks.system_id import SystemId

TASKS: dict[str, type[Task]] = {"copy": Copy, "sysid": SystemId}

__all__ = ["TASKS", "Copy", "Problem", "SystemId", "Task"]

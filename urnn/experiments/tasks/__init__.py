"""Tasks; the table names them."""

from urnn.experiments.tasks.base import Problem, Task
from urnn.experiments.tasks.copy import Copy
from urnn.experiments.tasks.mnist import Mnist
from urnn.experiments.tasks.speech import Speech
from urnn.experiments.tasks.system_id import SystemId

TASKS: dict[str, type[Task]] = {"copy": Copy, "sysid": SystemId, "speech": Speech, "mnist": Mnist}

__all__ = ["TASKS", "Copy", "Mnist", "Problem", "Speech", "SystemId", "Task"]

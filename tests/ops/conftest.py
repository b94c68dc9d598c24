"""A backend is tested with all that it can do; what it says it cannot is skipped with its own reason."""

import pytest
import torch

from urnn.ops import BACKENDS, Problem


@pytest.fixture(autouse=True)
def _only_what_the_backend_can(request: pytest.FixtureRequest) -> None:
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    backend, nonlinearity = parameters.get("backend"), parameters.get("nonlinearity", "modrelu")
    if backend in BACKENDS:
        problem = Problem(torch.device("cpu"), torch.complex128, 4, nonlinearity)
        if reason := BACKENDS[backend].why_not(problem):
            pytest.skip(reason)

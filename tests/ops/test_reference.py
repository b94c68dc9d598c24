"""The definition of the recurrence costs what its steps cost."""

import torch

from urnn.linalg import haar_unitary
from urnn.ops import recurrence


def nodes(root: torch.autograd.graph.Node) -> list[str]:
    """Names of all nodes of the backward graph."""
    found, seen, waiting = [], set(), [root]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            found.append(node.name())
            waiting += [parent for parent, _ in node.next_functions if parent is not None]
    return found


def test_no_step_writes_a_gradient_of_the_whole_sequence():
    """The gradient of an index is as large as what was indexed: with one for each step, time is quadratic in T."""
    T, n = 7, 3
    x, V = torch.randn(T, 2, 4), torch.randn(n, 4, dtype=torch.complex64, requires_grad=True)
    h, _ = recurrence(
        x, V, haar_unitary(n), torch.zeros(n), torch.zeros(2, n, dtype=torch.complex64), backend="reference"
    )
    names = nodes(h.grad_fn)
    assert sum("Unbind" in name for name in names) == 1
    assert sum("Select" in name for name in names) < T

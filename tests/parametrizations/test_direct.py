import torch

from urnn._module import is_unitary
from urnn.parametrizations import Full


def test_W_is_the_marked_parameter_itself() -> None:
    family = Full(4, (2,))
    assert family() is family.weight
    assert is_unitary(family.weight)
    assert [name for name, _ in family.named_parameters()] == ["weight"]


def test_the_chart_has_full_rank_coordinates_of_the_lie_algebra() -> None:
    family = Full(3, dtype=torch.complex128)
    theta, to_matrix = family.chart()
    assert torch.equal(theta, torch.zeros(9, dtype=torch.float64))
    W = to_matrix(torch.randn_like(theta))
    torch.testing.assert_close(W.mH @ W, torch.eye(3, dtype=torch.complex128))

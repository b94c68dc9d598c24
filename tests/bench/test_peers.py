"""The peers compute what they say."""

from functools import partial

import pytest
import torch

from urnn.bench import peers
from urnn.ops import recurrence


def exact(loop: peers.RealLoop, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the loop has to give, by the definition."""
    u = torch.complex(*loop.V(x).chunk(2, -1))
    h_0 = torch.complex(*loop.h_0).expand(x.shape[1], -1)
    return recurrence(u, None, torch.complex(loop.P, loop.Q).mT, loop.bias, h_0, backend="reference")


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # read by torch.compile itself
@pytest.mark.parametrize("compiled", [0, 2])
def test_the_real_loop_is_the_recurrence(compiled, monkeypatch):
    """In pieces of two steps and a rest of one; Inductor is left out, as its code takes a while to make."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    loop = peers.RealLoop(3, 4, compiled)
    x = torch.randn(5, 2, 3, requires_grad=True)
    inputs = [x, *loop.parameters()]
    (h, last), (expected, expected_last) = loop(x), exact(loop, x)
    torch.testing.assert_close(h, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(last, expected_last, rtol=0, atol=1e-5)
    weight = torch.randn_like(h)
    found = torch.autograd.grad(h, inputs, weight)
    for got, right in zip(found, torch.autograd.grad(expected, inputs, weight), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)


def test_the_compiled_piece_divides_the_steps():
    assert [peers.chunk(T) for T in (1, 7, 100, 150, 784, 1020, 1021)] == [1, 7, 10, 10, 8, 10, 1]


def test_the_orthogonal_rnn_is_orthogonal_and_learns():
    layer = peers.OrthogonalRNN(3, 8)
    h, h_n = layer(torch.randn(5, 2, 3))
    assert torch.equal(h[-1:], h_n)
    h.square().mean().backward()
    W = layer.rnn.weight_hh_l0
    assert (W.mT @ W - torch.eye(8)).abs().max() < 1e-5
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in layer.parameters())


def test_the_orthogonal_matrix_is_that_of_the_forward_pass():
    """nn.RNN keeps a list of its weights: the one it multiplies with must be the one torch keeps orthogonal."""
    layer = peers.OrthogonalRNN(3, 8)
    plain = torch.nn.RNN(3, 8)
    plain.load_state_dict({name: getattr(layer.rnn, name) for name in plain.state_dict()})
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(layer(x)[0], plain(x)[0])


def test_complextorch_takes_real_inputs():
    pytest.importorskip("complextorch")
    x = torch.randn(5, 2, 3, requires_grad=True)
    h, h_n = peers.ComplexTorch(3, 4)(x)
    assert (h.shape, h_n.shape, h.dtype) == ((5, 2, 4), (1, 2, 4), torch.complex64)
    h.abs().sum().backward()
    assert x.grad is not None


def test_a_missing_package_is_named():
    assert peers.missing("torch") is None
    assert peers.missing("no_such_package") == "no_such_package is not installed. pip install no_such_package adds it"

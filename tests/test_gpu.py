"""What only a CUDA device can show. `make test-gpu` runs this file and the captured steps of tests/graphs."""

import copy

import pytest
import torch

import urnn
from urnn.bench.memory import measure
from urnn.bench.registry import Shape
from urnn.linalg import (
    captured_cayley_step,
    cayley_step,
    cayley_step_by_products,
    full_precision,
    haar_unitary,
    skew,
    unitarity_defect,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
OPTIMIZERS = {
    "sgd": lambda p: urnn.optim.SGD(p, lr=0.1, momentum=0.9),
    "rmsprop": lambda p: urnn.optim.RMSprop(p, lr=1e-2, capturable=True),
    "adam": lambda p: urnn.optim.Adam(p, lr=1e-2, capturable=True),
}


@pytest.fixture(autouse=True)
def _tf32_everywhere():
    """The program around has chosen TF32 for its products."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield
    torch.backends.cuda.matmul.fp32_precision = before


def _problem(n: int) -> tuple[torch.nn.Module, torch.Tensor]:
    layer = urnn.unitary(torch.nn.Linear(n, n, bias=False, dtype=torch.complex64, device="cuda"))
    return layer, haar_unitary(n, device="cuda")


def _loss(layer: torch.nn.Module, target: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (layer(x) - x @ target.mT).abs().square().mean()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_stay_unitary_under_tf32(name):
    layer, target = _problem(64)
    optimizer = OPTIMIZERS[name](layer.parameters())
    for _ in range(500):
        optimizer.zero_grad()
        _loss(layer, target, torch.randn(16, 64, dtype=torch.complex64, device="cuda")).backward()
        optimizer.step()
    assert urnn.check_unitary(layer) < 2e-6


def test_tf32_alone_would_not_hold_the_matrix():
    """The reason for full_precision: the same products in TF32 err by more than the bound."""
    W = haar_unitary(64, device="cuda")
    eye = torch.eye(64, device="cuda")
    with full_precision():
        exact = (W.mH @ W - eye).abs().max()
    assert exact < 2e-6 < (W.mH @ W - eye).abs().max()
    assert unitarity_defect(W) < 2e-6


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_captured_step_equals_an_eager_one(name):
    layer, target = _problem(32)
    twin = copy.deepcopy(layer)
    x = torch.randn(16, 32, dtype=torch.complex64, device="cuda")
    captured, eager = (OPTIMIZERS[name](m.parameters()) for m in (layer, twin))

    def step(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad(set_to_none=False)
        _loss(module, target, x).backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(layer, captured)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(layer, captured)
    for _ in range(5):
        graph.replay()
    for _ in range(8):
        step(twin, eager)
    torch.testing.assert_close(layer.weight, twin.weight, rtol=0, atol=2e-4)
    assert urnn.check_unitary(layer) < 2e-6
    assert captured.failed_steps() == 0


def test_layer_on_the_device_equals_the_cpu():
    rnn = urnn.UnitaryRNN(5, 17, 2, bidirectional=True, backend="explicit", dtype=torch.float64)
    x = torch.randn(9, 3, 5, dtype=torch.float64)
    expected, last = rnn(x)
    got, got_last = rnn.to("cuda")(x.to("cuda"))
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(got_last.cpu(), last, rtol=0, atol=1e-12)


def test_memory_on_the_device_keeps_its_bounds():
    shape = Shape("states outweigh all else", 1024, 64, 64, 1)
    assert measure(shape, "cuda")["kept"] <= 1.1
    for input_gradient in (False, True):
        row = measure(shape, "cuda", input_gradient, return_sequence=False, checkpoint="sqrt")
        assert row["kept"] <= 0.1
        assert row["backward"] <= 0.5


def test_segments_on_the_device_equal_the_cpu():
    options = {"dtype": torch.float64, "backend": "explicit", "return_sequence": False, "checkpoint": "sqrt"}
    rnn = urnn.UnitaryRNN(5, 17, 2, bidirectional=True, **options)
    x = torch.randn(30, 3, 5, dtype=torch.float64)
    twin = copy.deepcopy(rnn).to("cuda")
    for module, inputs in ((rnn, x), (twin, x.to("cuda"))):
        module(inputs)[1].abs().sum().backward()
    for ours, other in zip(rnn.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), ours.grad, rtol=1e-10, atol=1e-10)


def test_autocast_on_the_device_computes_in_float32():
    rnn = urnn.UnitaryRNN(5, 16, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        h, _ = rnn(torch.randn(4, 3, 5, device="cuda"))
    assert h.dtype == torch.complex64


def test_devices_must_agree():
    rnn = urnn.UnitaryRNN(5, 4, device="cuda")
    with pytest.raises(ValueError, match="x: expected the device of the parameters, cuda:0, got cpu"):
        rnn(torch.randn(3, 2, 5))


# The Cayley step by products


@pytest.mark.parametrize("n", [3, 128, 512])
@pytest.mark.parametrize("radius", [0.01, 0.15])
def test_products_err_no_more_than_the_solve(n, radius):
    """In TF32 they would err by 1e-4."""
    W = haar_unitary(n, (2,), device="cuda")
    A = skew(torch.randn(2, n, n, dtype=torch.complex128, device="cuda"))
    A = (2 * radius * A / torch.linalg.matrix_norm(A, 2)[:, None, None]).to(W.dtype)
    exact = cayley_step(W.to(torch.complex128), A.to(torch.complex128), 1.0)
    with full_precision():
        plain, read = cayley_step(W, A, 1.0), cayley_step_by_products(W, A, 1.0)
        captured, failed = captured_cayley_step(W, A, 1.0)
    bound = 2 * float((plain - exact).abs().max()) + 6e-8
    assert not failed.any()
    for found in (read, captured):
        assert float((found - exact).abs().max()) <= bound


def _step_in_a_graph(optimizer: torch.optim.Optimizer, gradients: list[torch.Tensor]) -> torch.Tensor:
    """A plain step along zero, which makes the state, then one captured step along each gradient.

    Returns W as the plain step leaves it: the polish moves its last bits.
    """
    (W,) = optimizer.param_groups[0]["params"]
    W.grad = torch.zeros_like(W)
    optimizer.step()
    start = W.detach().clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    for gradient in gradients:
        W.grad.copy_(gradient)
        graph.replay()
    return start


def test_a_step_too_long_for_a_graph_leaves_its_matrix_and_is_counted():
    W = urnn.parametrizations.Full(8, (3,), device="cuda").weight
    optimizer = urnn.optim.SGD([W], lr=0.01)
    gradient = torch.randn_like(W)
    gradient[1] *= 1000
    start = _step_in_a_graph(optimizer, [gradient, gradient])
    assert torch.equal(W[1], start[1])
    assert all(not torch.equal(W[i], start[i]) for i in (0, 2))
    assert optimizer.failed_steps() == 2
    assert optimizer.state[W]["failed"].tolist() == [0, 2, 0]
    W.grad.copy_(gradient)
    optimizer.step()  # plainly, by a solve
    assert not torch.equal(W[1], start[1])
    assert optimizer.failed_steps() == 2
    assert unitarity_defect(W).max() < 2e-6


@pytest.mark.parametrize("captured", [True, False])
def test_nan_is_not_hidden(captured):
    W = urnn.parametrizations.Full(8, device="cuda").weight
    optimizer = urnn.optim.SGD([W], lr=0.01)
    gradient = torch.full_like(W, torch.nan)
    if captured:
        _step_in_a_graph(optimizer, [gradient])
    else:
        W.grad = gradient
        optimizer.step()
    assert W.detach().isnan().any()
    assert optimizer.failed_steps() == 0

"""What is particular to the compiled backend: threads, forks, first use, and the borders of its fast path."""

import multiprocessing
import threading

import pytest
import torch
from torch import Tensor

from urnn.linalg import haar_unitary
from urnn.ops import recurrence
from urnn.ops.cpu import launch, pool


def problem(T: int, B: int, n: int, m: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    cplx = torch.complex128 if dtype == torch.float64 else torch.complex64
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int, dtype: torch.dtype = cplx) -> Tensor:
        return torch.randn(shape, dtype=dtype, generator=generator)

    W = haar_unitary(n, generator=generator, dtype=cplx)
    return draw(T, B, m, dtype=dtype), 0.5 * draw(n, m), W, 0.2 * draw(n, dtype=dtype), draw(B, n)


def run(tensors: tuple[Tensor, ...], backend: str = "cpu") -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in tensors]
    h, h_n = recurrence(*leaves, backend=backend)
    generator = torch.Generator().manual_seed(4)
    cotangents = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in (h, h_n)]
    return [h.detach(), h_n.detach(), *torch.autograd.grad([h, h_n], leaves, cotangents)]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11 * float(b.abs().max()))


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_result_does_not_depend_on_threads(count, threads, monkeypatch):
    monkeypatch.setattr(launch, "SMALL_WORK", 0)
    tensors = problem(9, 5, 33, 4)
    threads(count)
    assert_same(run(tensors), run(tensors, "reference"))


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 16, 17, 97, 161])
@pytest.mark.parametrize("B", [1, 5, 6, 13])
def test_sizes_around_those_of_a_tile(n, B):
    tensors = problem(3, B, n, 2)
    assert_same(run(tensors), run(tensors, "explicit"))


@pytest.mark.parametrize("m", [1, 7, 16, 33])
def test_input_sizes_around_those_of_a_tile(m):
    for x_dtype in (torch.float64, torch.complex128):
        x, *others = problem(4, 7, 5, m)
        tensors = (x.to(x_dtype) * (1 if x_dtype == torch.float64 else 1 + 0.5j), *others)
        assert_same(run(tensors), run(tensors, "explicit"))


def test_several_python_threads_at_once(threads, monkeypatch):
    monkeypatch.setattr(launch, "SMALL_WORK", 0)
    threads(2)
    tensors = problem(20, 6, 17, 3)
    expected = run(tensors)
    found: list[list[Tensor]] = []
    workers = [threading.Thread(target=lambda: found.append(run(tensors))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(found) == 4
    for result in found:
        assert_same(result, expected)


def _forward() -> list[float]:
    """Without a backward pass: where CUDA is there, PyTorch itself allows none in a forked child."""
    with torch.no_grad():
        return [t.abs().sum().item() for t in recurrence(*problem(20, 6, 17, 3), backend="cpu")]


def _in_child(queue) -> None:
    queue.put(_forward())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(monkeypatch):
    """PyTorch itself keeps one thread here, as in a DataLoader's workers: its own pool does not survive a fork."""
    monkeypatch.setattr(launch, "SMALL_WORK", 0)
    monkeypatch.setattr(pool, "threads", lambda: 2)
    expected = _forward()  # the parent's pool exists now
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,), daemon=True)
    child.start()
    found = queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert found == pytest.approx(expected, rel=1e-9)


def test_small_states_under_a_positive_bias_are_rebuilt_exactly():
    """|h| < 2 b: |z| = |h| - b would cancel, so z comes from W h + V x."""
    x, V, W, b, h_0 = problem(12, 4, 9, 2)
    tensors = (1e-6 * x, 1e-3 * V, W, b.abs() + 0.5, 1e-9 * h_0)
    assert_same(run(tensors), run(tensors, "reference"))


@pytest.mark.parametrize("size", [0.0, 1e-44, 1e-30, 1e-20, 1e-18, 1e18, 1e30, 1e38])
@pytest.mark.parametrize("bias", [-0.01, 0.0, 0.01])
def test_entries_outside_the_fast_path(size, bias):
    h_0 = torch.tensor([[size + 0j, 1 - 1j, size * (0.6 - 0.8j)]], dtype=torch.complex64)
    zeros, W = torch.zeros(1, 1, 3, dtype=torch.complex64), torch.eye(3, dtype=torch.complex64)
    b = torch.full((3,), bias)
    results = []
    for backend in ("cpu", "reference"):
        leaves = [t.clone().requires_grad_() for t in (h_0, b)]
        h, _ = recurrence(zeros, None, W, leaves[1], leaves[0], backend=backend)
        results.append([h.detach(), *torch.autograd.grad(h, leaves, torch.full_like(h, 1 - 2j))])
    for found, expected in zip(*results, strict=True):
        assert bool(torch.isfinite(found).all())
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def test_first_use_is_announced_where_it_takes_long(monkeypatch, capsys):
    class Impatient(threading.Timer):
        def __init__(self, seconds, function, arguments):
            assert seconds == 1.0
            super().__init__(0.0, function, arguments)

    monkeypatch.setattr(pool.threading, "Timer", Impatient)
    monkeypatch.setattr(pool, "_ready", set())
    for _ in range(2):
        with pool.patience("forward", torch.float32):
            threading.Event().wait(0.2)
    assert capsys.readouterr().err == (
        "urnn: compiling the CPU recurrence (forward, torch.float32); this happens once, the code is kept on disk\n"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": torch.device("meta")}, "it computes on the CPU, and the tensors are on meta"),
        ({"nonlinearity": "modrelu_epsilon"}, "nonlinearity='modrelu_epsilon' has no compiled form"),
    ],
)
def test_it_says_what_it_cannot(changes, reason):
    from urnn.ops import BACKENDS, Problem

    known = Problem(torch.device("cpu"), torch.complex64, 8, "modrelu")
    assert BACKENDS["cpu"].why_not(known) is None
    assert (BACKENDS["cpu"].why_not(known._replace(**changes)) or "").startswith(reason)

"""The GPU backend. What needs no GPU, here: every kernel compiles, and the plans fit. The rest with `make test-gpu`."""

import copy
import importlib.util
from pathlib import Path
from statistics import median

import pytest
import torch
from torch import Tensor

import urnn
from urnn.ops import BACKENDS, Problem, recurrence

compiler = importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")
needs_compiler = pytest.mark.skipif(not compiler, reason="cuda-bindings is not installed")
SIZES = (1, 3, 97, 128, 161, 513, 1024)
GPUS = {  # multiprocessors, compute capability, shared memory of a block
    "A100": (108, (8, 0), 163 * 1024),
    "H200": (132, (9, 0), 227 * 1024),
    "RTX 5090": (170, (12, 0), 99 * 1024),
    "too small": (16, (8, 9), 99 * 1024),
}
NAMES = ("h", "h_n", "dx", "dV", "dW", "db", "dh_0")


def has_compiler() -> bool:
    """NVRTC itself is a library of its own."""
    if not compiler:
        return False
    from cuda.bindings import nvrtc

    try:
        return int(nvrtc.nvrtcVersion()[0]) == 0
    except RuntimeError:
        return False


@pytest.mark.skipif(not has_compiler(), reason="NVRTC (nvidia-cuda-nvrtc) is not installed")
@pytest.mark.parametrize("hard", [0, 1])
@pytest.mark.parametrize("n", SIZES)
def test_the_kernels_compile(n: int, hard: int) -> None:
    from urnn.ops.gpu import plan
    from urnn.ops.gpu.compiler import compile_source

    common = {"N": n, "HARD": hard}
    sources = [("moduli.cu", {"M": 3, "REAL_INPUTS": 1}), ("moduli.cu", {"M": 0, "REAL_INPUTS": 0})]
    h200 = plan.Gpu(*GPUS["H200"])
    if n <= plan.ROW_LIMIT:
        sources += [("row.cu", plan.row_plan(n, 1, B, h200)[0]) for B in (20, 60, 128)]
    sources += [("split.cu", plan.split_plan(n, 1, 16, h200, tf32)[0].macros) for tf32 in (False, True)]
    for source, macros in sources:
        assert compile_source(source, tuple({**common, **macros}.items()), "sm_90")


@pytest.mark.skipif(not has_compiler(), reason="NVRTC (nvidia-cuda-nvrtc) is not installed")
def test_an_error_of_the_compiler_is_shown() -> None:
    from urnn.ops.gpu.compiler import compile_source

    with pytest.raises(RuntimeError, match=r'row\.cu does not compile(.|\n)*"ROWS" is undefined'):
        compile_source("row.cu", (("N", 4), ("HARD", 0)), "sm_90")


@needs_compiler
@pytest.mark.parametrize("name", ["A100", "H200", "RTX 5090"])
@pytest.mark.parametrize("B", [1, 20, 128, 1000])
@pytest.mark.parametrize("E", [1, 3, 50])
@pytest.mark.parametrize("n", [129, 200, 512])
def test_a_plan_serves_every_row_once_and_fits(n: int, E: int, B: int, name: str) -> None:
    from urnn.ops.gpu import plan

    gpu = plan.Gpu(*GPUS[name])
    parts = plan.split_plan(n, E, B, gpu, tf32=False)
    members = [e for part in parts for e in range(E)[part.members]]
    assert members == list(range(E))
    for part in parts:
        rows = [pack for group in range(part.groups) for pack in range(group * part.packs, (group + 1) * part.packs)]
        needed = -(-B // plan.PACK)
        assert rows[:needed] == list(range(needed))
        assert (part.groups - 1) * part.packs < needed, "no group without rows"
        assert part.launch.blocks <= gpu.multiprocessors
        assert part.launch.shared_bytes <= gpu.shared_bytes


@needs_compiler
@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("sequences", [1, 20, 40, 60, 128, 1000])
def test_rows_share_the_multiprocessors_that_are_there(sequences: int, name: str) -> None:
    from urnn.ops.gpu import plan

    gpu = plan.Gpu(*GPUS[name])
    macros, launch = plan.row_plan(128, 1, sequences, gpu)
    assert launch.blocks == sequences * launch.cluster
    assert launch.cluster == macros["CLUSTER"]
    assert launch.cluster == 1 or (launch.blocks <= gpu.multiprocessors and gpu.capability >= (9, 0))
    assert launch.shared_bytes <= gpu.shared_bytes - 24 * 1024, "beside what the kernel itself declares"


@needs_compiler
def test_too_small_a_gpu() -> None:
    from urnn.ops.gpu import plan

    small = plan.Gpu(*GPUS["too small"])
    said = plan.split_limits(1024, small, tf32=False)
    assert said is not None
    assert "hidden size 1024 needs more than the 16 multiprocessors with 99 KiB of shared memory" in said
    assert plan.split_limits(129, small, tf32=True) is None


def test_sources_are_part_of_the_package() -> None:
    folder = Path(urnn.__file__).parent / "ops" / "gpu"
    assert {path.name for path in folder.glob("*.cu*")} == {"modrelu.cuh", "moduli.cu", "row.cu", "split.cu"}


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Problem(torch.device("cpu"), torch.complex64, 4, "modrelu"), "the tensors are on cpu"),
        (Problem(torch.device("cuda"), torch.complex128, 4, "modrelu"), "single precision, and W is torch.complex128"),
        (Problem(torch.device("cuda"), torch.complex64, 4, "modrelu_epsilon"), "has no compiled form"),
        (Problem(torch.device("cuda"), torch.complex64, 1025, "modrelu"), "hidden sizes up to 1024, not 1025"),
    ],
)
def test_what_it_cannot(problem: Problem, reason: str) -> None:
    said = BACKENDS["gpu"].why_not(problem)
    assert said is not None
    assert reason in said


# ---- on a GPU

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
CASES = {
    "N=1": {"n": 1},
    "N=3": {"n": 3, "bias": 0.3},
    "N=97": {"n": 97},
    "N=128": {"n": 128, "B": 20},
    "N=128, B=60": {"n": 128, "B": 60},
    "N=128, B=140": {"n": 128, "B": 140, "T": 7},
    "N=161": {"n": 161},
    "N=513": {"n": 513, "T": 12},
    "N=1024": {"n": 1024, "T": 6, "B": 11},
    "one step": {"n": 130, "T": 1},
    "b = 0": {"n": 70, "bias": 0.0},
    "large b": {"n": 70, "bias": 2.0},
    "lengths": {"n": 100, "E": 2, "lengths": True},
    "lengths, reverse": {"n": 100, "E": 2, "lengths": True, "reverse": True},
    "split, lengths": {"n": 161, "E": 2, "B": 11, "lengths": True},
    "split, lengths, reverse": {"n": 200, "E": 3, "B": 9, "lengths": True, "reverse": True},
    "more members than fit": {"n": 300, "E": 20, "B": 3, "T": 5},
    "complex inputs": {"n": 64, "real": False},
    "pre-activations": {"n": 64, "m": 0},
    "hard": {"n": 64, "nonlinearity": "hard"},
    "split, hard": {"n": 256, "nonlinearity": "hard", "real": False},
    "split, pre-activations": {"n": 192, "m": 0},
    "half gradient": {"n": 40, "half_gradient": True},
}


def _problem(
    n: int,
    T: int = 30,
    E: int = 1,
    B: int = 5,
    m: int = 3,
    bias: float = 0.05,
    lengths: bool = False,
    real: bool = True,
    seed: int = 0,
) -> tuple[list[Tensor | None], list[Tensor], Tensor | None]:
    """Arguments in double precision, incoming gradients, lengths."""
    g = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    def cplx(*shape: int) -> Tensor:
        return torch.complex(numbers(*shape), numbers(*shape))

    W = torch.linalg.qr(cplx(E, n, n))[0]
    V = cplx(E, n, m) * 0.3 / m**0.5 if m else None
    x = cplx(T, E, B, n) * 0.3 if V is None else numbers(T, E, B, m) if real else cplx(T, E, B, m)
    arguments = [x, V, W, numbers(E, n) * bias, cplx(E, B, n) / n**0.5]
    incoming = [cplx(T, E, B, n), cplx(E, B, n)]
    short = torch.randint(0, T + 1, (E, B), generator=g).cuda() if lengths else None
    return [None if a is None else a.cuda() for a in arguments], [a.cuda() for a in incoming], short


def _pass(
    arguments: list[Tensor | None],
    incoming: list[Tensor],
    lengths: Tensor | None,
    backend: str,
    dtype: torch.dtype,
    **options: object,
) -> dict[str, Tensor]:
    real = torch.float64 if dtype == torch.complex128 else torch.float32
    cast = [None if a is None else a.to(dtype if a.is_complex() else real).requires_grad_() for a in arguments]
    outputs = recurrence(*cast, lengths, backend=backend, **options)  # type: ignore[arg-type]
    wanted = [a for a in cast if a is not None]
    grads = iter(torch.autograd.grad(outputs, wanted, [g.to(dtype) for g in incoming]))
    values = [*outputs, *(None if a is None else next(grads) for a in cast)]
    return {name: value for name, value in zip(NAMES, values, strict=True) if value is not None}


def _error(value: Tensor, exact: Tensor) -> float:
    return ((value.to(exact.dtype) - exact).norm() / exact.norm().clamp_min(1e-30)).item()


@pytest.mark.parametrize("name", CASES)
class TestOnGPU:
    pytestmark = gpu

    def test_it_errs_no_more_than_pytorch(self, name: str) -> None:
        """Medians of five problems: a rounding error near |z| = 0 is amplified by b / |z|, in either by chance."""
        case = dict(CASES[name])
        options = {key: case.pop(key) for key in ("reverse", "nonlinearity", "half_gradient") if key in case}
        errors: dict[str, dict[str, list[float]]] = {"gpu": {}, "explicit": {}}
        for seed in range(5):
            problem = _problem(**case, seed=seed)  # type: ignore[arg-type]
            exact = _pass(*problem, "explicit", torch.complex128, **options)
            for backend, found in errors.items():
                for key, value in _pass(*problem, backend, torch.complex64, **options).items():
                    found.setdefault(key, []).append(_error(value, exact[key]))
        for key, plain in errors["explicit"].items():
            assert median(errors["gpu"][key]) <= 2 * median(plain) + 2e-7, key

    def test_tf32_is_near(self, name: str) -> None:
        case = dict(CASES[name])
        options = {key: case.pop(key) for key in ("reverse", "nonlinearity", "half_gradient") if key in case}
        problem = _problem(**{**case, "bias": 0.0})  # type: ignore[arg-type]
        exact = _pass(*problem, "explicit", torch.complex128, **options)
        matmul = torch.backends.cuda.matmul
        before = matmul.fp32_precision
        matmul.fp32_precision = "tf32"
        try:
            ours = _pass(*problem, "gpu", torch.complex64, **options)
        finally:
            matmul.fp32_precision = before
        for key, value in exact.items():
            assert _error(ours[key], value) < 2e-2, key


class TestBehaviour:
    pytestmark = gpu

    def test_auto_takes_it(self) -> None:
        layer = urnn.UnitaryRNN(3, 8, device="cuda")
        x = torch.randn(5, 2, 3, device="cuda")
        ours = layer(x)[0]
        layer.backend = "gpu"
        assert torch.equal(layer(x)[0], ours)

    def test_auto_says_once_why_not(self) -> None:
        layer = urnn.UnitaryRNN(3, 9, device="cuda", nonlinearity="modrelu_epsilon")
        x = torch.randn(5, 2, 3, device="cuda")
        with pytest.warns(UserWarning, match="'auto' passes over 'gpu', which is fast: .*no compiled form"):
            layer(x)
        layer(x)  # a second warning would be an error
        layer.backend = "gpu"
        with pytest.raises(ValueError, match="backend: 'gpu' cannot serve here: .*no compiled form"):
            layer(x)

    @pytest.mark.parametrize("n", [8, 128, 192])
    def test_nan_goes_through(self, n: int) -> None:
        layer = urnn.UnitaryRNN(3, n, device="cuda")
        x = torch.randn(9, 3, 3, device="cuda")
        x[4, 1] = float("nan")
        h = layer(x)[0]
        assert torch.isnan(h[4:, 1].real).all()
        assert torch.isfinite(torch.view_as_real(h[:4])).all()
        assert torch.isfinite(torch.view_as_real(h[:, [0, 2]])).all()

    @pytest.mark.parametrize("shape", [(5, 0, 3), (1, 1, 3)])
    @pytest.mark.parametrize("n", [8, 192])
    def test_small_batches(self, n: int, shape: tuple[int, int, int]) -> None:
        layer = urnn.UnitaryRNN(3, n, device="cuda")
        h = layer(torch.randn(shape, device="cuda"))[0]
        h.abs().sum().backward()
        assert h.shape == (*shape[:2], n)
        assert layer.weight_hh_l0.grad is not None

    @pytest.mark.parametrize("n", [100, 300])
    def test_it_repeats_bit_for_bit(self, n: int) -> None:
        problem = _problem(n, B=40)
        first, second = (_pass(*problem, "gpu", torch.complex64) for _ in range(2))
        for key in first:
            assert torch.equal(first[key], second[key]), key

    @pytest.mark.parametrize("n", [100, 300])
    def test_a_cuda_graph_replays_it(self, n: int) -> None:
        layer = urnn.UnitaryRNN(3, n, device="cuda")
        x = torch.randn(11, 4, 3, device="cuda")

        twin = copy.deepcopy(layer)

        def step(layer: urnn.UnitaryRNN) -> tuple[Tensor, Tensor]:
            h = layer(x)[0]
            return h, torch.autograd.grad(h.abs().sum(), layer.weight_hh_l0)[0]

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step(layer)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = step(layer)
        x.normal_()
        graph.replay()
        for ours, expected in zip(replayed, step(twin), strict=True):
            assert torch.equal(ours, expected)

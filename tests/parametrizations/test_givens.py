"""Layouts, and the decomposition of Clements et al. on matrices that it has to divide 0 by 0 for."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from urnn.linalg import haar_unitary, is_unitary_matrix
from urnn.parametrizations import Givens
from urnn.parametrizations.givens import LAYOUTS, layer_pairs

SIZES = (1, 2, 3, 5, 6, 8)


@pytest.mark.parametrize(
    ("layout", "n", "layer", "pairs"),
    [
        ("brick", 1, 0, []),
        ("brick", 2, 1, []),
        ("brick", 4, 0, [(0, 1), (2, 3)]),
        ("brick", 4, 1, [(1, 2)]),
        ("brick", 5, 2, [(0, 1), (2, 3)]),
        ("fft", 1, 0, []),
        ("fft", 4, 0, [(0, 1), (2, 3)]),
        ("fft", 4, 1, [(0, 2), (1, 3)]),
        ("fft", 4, 2, [(0, 1), (2, 3)]),
        ("fft", 5, 2, [(0, 4)]),
        ("fft", 6, 1, [(0, 2), (1, 3)]),
        ("fft", 6, 2, [(0, 4), (1, 5)]),
    ],
)
def test_pairs_of_a_layer(layout: str, n: int, layer: int, pairs: list[tuple[int, int]]) -> None:
    assert layer_pairs(layout, n, layer) == pairs


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(n=st.integers(1, 40), layer=st.integers(0, 50), layout=st.sampled_from(LAYOUTS))
def test_no_layer_touches_an_index_twice(n: int, layer: int, layout: str) -> None:
    touched = [i for pair in layer_pairs(layout, n, layer) for i in pair]
    assert len(set(touched)) == len(touched)
    assert all(0 <= i < n for i in touched)


def rotation(n: int, i: int, j: int, theta: Tensor, phi: Tensor) -> Tensor:
    G = torch.eye(n, dtype=torch.complex128)
    G[i, i], G[i, j] = torch.exp(1j * phi) * theta.cos(), -theta.sin()
    G[j, i], G[j, j] = torch.exp(1j * phi) * theta.sin(), theta.cos()
    return G


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", SIZES)
def test_W_is_the_diagonal_after_the_rotations(n: int, layout: str) -> None:
    made = Givens(n, layers=4, layout=layout, dtype=torch.complex128)
    values = iter(zip(made.angles, made.phases, strict=True))
    W = torch.eye(n, dtype=torch.complex128)
    for layer in range(4):
        for i, j in layer_pairs(layout, n, layer):
            W = rotation(n, i, j, *next(values)) @ W
    assert not list(values)
    torch.testing.assert_close(made(), torch.exp(1j * made.diagonal).unsqueeze(-1) * W)


@pytest.mark.parametrize("n", SIZES)
def test_counts(n: int) -> None:
    assert Givens(n).num_real_params == n * n  # exactly the dimension of U(n)
    fft = Givens(n, layout="fft")
    assert fft.layers == max(math.ceil(math.log2(n)), 1)
    pairs = sum(len(layer_pairs("fft", n, layer)) for layer in range(fft.layers))
    assert fft.num_real_params == 2 * pairs + n


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_one_sweep_of_the_fft_mixes_every_entry_with_every_other(n: int) -> None:
    assert (Givens(n, layout="fft", dtype=torch.complex128)().abs() > 1e-12).all()


def test_more_layers_repeat_the_sweep() -> None:
    assert [layer_pairs("fft", 6, layer) for layer in range(3)] == [
        layer_pairs("fft", 6, layer) for layer in range(3, 6)
    ]


def special(n: int) -> dict[str, Tensor]:
    eye = torch.eye(n, dtype=torch.complex128)
    real = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0]
    return {
        "identity": eye,
        "minus identity": -eye,
        "reversal": eye.flip(0),
        "cycle": eye.roll(1, 0),
        "random permutation": eye[torch.randperm(n)],
        "DFT": torch.fft.fft(eye, norm="ortho"),
        "diagonal": torch.diag(torch.exp(1j * torch.linspace(-3, 3, n, dtype=torch.float64))),
        "real orthogonal": real.to(torch.complex128),
        "blocks": torch.block_diag(haar_unitary(n, dtype=torch.complex128))[torch.randperm(n)],
        "Haar": haar_unitary(n, dtype=torch.complex128),
        "nearly the identity": torch.linalg.matrix_exp(1e-9j * torch.ones(n, n, dtype=torch.complex128)),
    }


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", special(1))
@pytest.mark.parametrize("extra", [0, 1, 3])
def test_decomposition_of_special_matrices(name: str, n: int, extra: int) -> None:
    made, W = Givens(n, layers=n + extra, dtype=torch.complex128), special(n)[name]
    made.load_unitary(W)
    torch.testing.assert_close(made(), W, rtol=0, atol=1e-13)


def test_one_layer_is_enough_for_two_units() -> None:
    made, W = Givens(2, layers=1, dtype=torch.complex128), haar_unitary(2, dtype=torch.complex128)
    made.load_unitary(W)
    torch.testing.assert_close(made(), W)


def test_decomposition_of_a_batch_is_that_of_each() -> None:
    W = torch.stack([W for name, W in sorted(special(5).items())])
    made = Givens(5, (len(W),), dtype=torch.complex128)
    made.load_unitary(W)
    torch.testing.assert_close(made(), W, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "options",
    [{"layers": 4}, {"layout": "fft"}, {"layout": "fft", "layers": 9}],
    ids=["few bricks", "fft", "fft, many"],
)
def test_what_has_no_decomposition_says_so(options: dict[str, object]) -> None:
    with pytest.raises(NotImplementedError, match=r"Givens has no right inverse"):
        Givens(5, **options).load_unitary(haar_unitary(5))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layers": 0}, ValueError, r"layers: expected an int >= 1, got 0"),
        ({"layers": "two"}, TypeError, r"layers: expected an int, got str \('two'\)"),
        (
            {"layout": "bricks"},
            ValueError,
            r"layout: expected one of \['brick', 'fft'\], got 'bricks'. Did you mean 'brick'\?",
        ),
    ],
)
def test_bad_options(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Givens(6, **options)  # type: ignore[arg-type]


def test_a_module_made_on_meta_can_be_filled():
    source, target = Givens(5), Givens(5, device="meta")
    target.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(target(), source())
    empty = Givens(5, device="meta").to_empty(device="cpu")
    empty.reset_parameters()
    assert is_unitary_matrix(empty().detach())

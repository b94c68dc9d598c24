import pytest
import torch

from urnn.ops import BACKEND_NAMES, BACKENDS, Backend, Problem, check_backend, recurrence
from urnn.ops.backends import choose

PROBLEM = Problem(torch.device("cpu"), torch.complex64, 4, "modrelu")


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first row that never can, and one whose module is broken."""
    monkeypatch.setitem(BACKENDS, "lazy", Backend("urnn.ops.explicit", lambda _: "it is Sunday"))
    monkeypatch.setattr("urnn.ops.backends.BACKEND_NAMES", (*BACKEND_NAMES, "lazy"))


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_has_forward_and_backward(name: str) -> None:
    kernels = BACKENDS[name].load()
    assert callable(kernels.forward)
    assert callable(kernels.backward)


@pytest.mark.parametrize("name", BACKEND_NAMES)
def test_names_pass(name: str) -> None:
    assert check_backend("backend", name) == name


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"backend: expected one of \[.*\], got 'explicid'. Did you mean 'explicit'\?"):
        check_backend("backend", "explicid")


@pytest.mark.usefixtures("lazy")
def test_a_backend_asked_for_by_name_says_why_not() -> None:
    x = torch.zeros(2, 1, 2).cfloat()
    message = r"backend: 'lazy' cannot serve here: it is Sunday. backend='auto' takes one that can."
    with pytest.raises(ValueError, match=message):
        recurrence(x, None, torch.eye(2).cfloat(), torch.zeros(2), x[0], backend="lazy")


def test_auto_passes_over_those_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "never": Backend("urnn.ops.nowhere", lambda _: "never"),
        "always": Backend("urnn.ops.explicit", lambda _: None),
    }
    monkeypatch.setattr("urnn.ops.backends.BACKENDS", table)
    assert choose("auto", PROBLEM).__name__ == "urnn.ops.explicit"  # type: ignore[attr-defined]


def test_an_import_error_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urnn.ops.backends.BACKENDS", {"broken": Backend("urnn.ops.nowhere", lambda _: None)})
    with pytest.raises(ModuleNotFoundError, match=r"urnn\.ops\.nowhere"):
        choose("auto", PROBLEM)

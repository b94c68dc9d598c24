"""Is every unitary tensor of a model still unitary, and loading states that might not be."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from urnn._checks import PRECISIONS, format_shape
from urnn._module import unitary_tensors
from urnn.linalg import is_unitary_matrix, nearest_unitary, unitarity_defect, unitarity_tol
from urnn.parametrizations import Parametrization
from urnn.parametrizations.attach import OnWeight


def check_unitary(model: nn.Module) -> float:
    """Check every unitary parameter of ``model``, and return the largest max|W^H W - I| found.

    Raises:
        ValueError: names the parameter, its defect and the likely cause.

    >>> import urnn
    >>> check_unitary(urnn.UnitaryRNN(10, 8)) < 1e-5
    True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    worst = 0.0
    for name, W in (*unitary_tensors(model), *_made(model)):
        if fault := _fault(W):
            cause = (
                "A gradient that was not finite is the likely cause."
                if not bool(torch.isfinite(torch.view_as_real(W.detach())).all())
                else "The likely cause is an optimizer that is not from urnn.optim, or an average of several models; "
                "urnn.linalg.nearest_unitary(W) projects it back."
            )
            raise ValueError(f"{name}: {fault}. {cause}")
        if W.numel():
            worst = max(worst, float(unitarity_defect(W.detach()).max()))
    return worst


def load_state_dict(model: nn.Module, state: Mapping[str, Any], project: bool = False) -> None:
    """Load ``state`` as ``model.load_state_dict`` does, after all of it was checked: on an error nothing has changed.

    Args:
        model: any module.
        state: names to tensors, complete.
        project: replace a unitary tensor that is not unitary by the nearest one that is, instead of raising.

    Raises:
        ValueError, TypeError: name the entry, what was expected and what came.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(state, Mapping):
        raise TypeError(f"state: expected a mapping of names to tensors, got {type(state).__name__}")
    expected = model.state_dict()
    if missing := sorted(expected.keys() - state.keys()):
        raise ValueError(f"state: expected an entry {missing[0]!r}, and {len(missing) - 1} more, got none")
    if unknown := sorted(state.keys() - expected.keys()):
        raise ValueError(f"state: expected the entries of the model, got {unknown[0]!r} and {len(unknown) - 1} more")
    unitary = {name for name, _ in unitary_tensors(model)}
    checked = {
        name: _checked(name, state[name], value, name in unitary, project)
        for name, value in expected.items()
        if isinstance(value, Tensor)
    }
    trial = copy.deepcopy(model)
    trial.load_state_dict({**state, **checked})
    try:
        check_unitary(trial)
    except (IndexError, RuntimeError) as error:  # indices that point nowhere
        raise ValueError(f"state: expected parameters that make a unitary matrix, got an error: {error}") from error
    model.load_state_dict({**state, **checked})


def _made(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Name and value of the matrices that families make from their own parameters."""
    with torch.no_grad():
        for prefix, module in model.named_modules():
            if isinstance(module, Parametrization) and not module.direct and any(True for _ in module.parameters()):
                yield prefix, module()
            for name in getattr(module, "parametrizations", ()) if parametrize.is_parametrized(module) else ():
                if any(isinstance(p, OnWeight) for p in module.parametrizations[name]):
                    yield f"{prefix}.{name}".lstrip("."), getattr(module, name)


def _checked(name: str, value: object, expected: Tensor, unitary: bool, project: bool) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    if value.is_meta:
        raise ValueError(f"{name}: expected a tensor with values, got one on the meta device")
    if value.shape != expected.shape:
        raise ValueError(f"{name}: expected shape {format_shape(expected.shape)}, got {format_shape(value.shape)}")
    if value.is_complex() != expected.is_complex() or value.is_floating_point() != expected.is_floating_point():
        raise TypeError(f"{name}: expected {expected.dtype}, got {value.dtype}")
    if (value.is_complex() or value.is_floating_point()) and not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name}: expected finite entries, got NaN or inf")
    if unitary and (fault := _fault(value)):
        if not project:
            raise ValueError(f"{name}: {fault}. project=True takes the nearest unitary matrix instead.")
        return nearest_unitary(value)
    return value


def _fault(W: Tensor) -> str | None:
    """Why ``W`` is not unitary, or None."""
    W = W.detach()
    if W.dtype not in PRECISIONS or not W.is_complex():
        return f"expected complex64 or complex128, got {W.dtype}"
    if is_unitary_matrix(W):
        return None
    defect = float(unitarity_defect(W).max())
    tolerance = unitarity_tol(W.shape[-1], W.dtype)
    return f"expected a unitary matrix, max|W^H W - I| <= {tolerance:.1e}, got {defect:.1e}"

"""Eigenvalues of W before and after a run, from its settings and its newest checkpoint."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from urnn import UnitaryRNN
from urnn.experiments import checkpoint
from urnn.experiments.folder import RunFolder
from urnn.parametrizations import Parametrization

LARGEST = 2000
"""So many eigenvalues are shown of a run at most."""


def eigenvalues(folder: RunFolder) -> dict[str, Any] | None:
    """Phases and moduli of the eigenvalues of every W, ``before`` training and ``after`` it; None without a checkpoint.

    The first W is not in the folder: it is drawn anew from the seed, as the run itself drew it. Where the run's device
    is not here, ``before`` is empty.
    """
    paths = checkpoint.found(folder.path / "checkpoint")
    if not paths:
        return None
    config = folder.config()
    here = torch.device(config.device).type == "cpu" or torch.cuda.is_available()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(config.seed)
        model = config.problem.start(config if here else replace(config, device="cpu")).model()
        before = _polar(model)
        tensors, meta = checkpoint.load(paths[-1])
        model.load_state_dict(checkpoint.unflatten(meta["model"], tensors))
        after = _polar(model)
    if not after:
        return None
    first = before if here else []  # another device draws other numbers
    return {"before": first[:LARGEST], "after": after[:LARGEST], "iteration": int(paths[-1].stem)}


def _polar(model: nn.Module) -> list[tuple[float, float]]:
    """(phase, modulus) of each eigenvalue."""
    found = [torch.linalg.eigvals(W).flatten() for W in matrices(model)]
    values = torch.cat(found) if found else torch.zeros(0, dtype=torch.complex64)
    return [(round(a, 5), round(r, 7)) for a, r in zip(values.angle().tolist(), values.abs().tolist(), strict=True)]


def matrices(model: nn.Module) -> list[Tensor]:
    """Every W of a model: those of its recurrent layers, and those of families that stand alone."""
    layers = [module for module in model.modules() if isinstance(module, UnitaryRNN)]
    inside = {id(part) for layer in layers for part in layer.modules()}
    found = []
    for layer in layers:
        for suffix in ("", "_reverse") if layer.bidirectional else ("",):
            found += [getattr(layer, f"weight_hh_l{i}{suffix}") for i in range(layer.num_layers)]
    alone = (m for m in model.modules() if isinstance(m, Parametrization) and id(m) not in inside)
    return [W.detach().cpu() for W in (*found, *(family() for family in alone))]

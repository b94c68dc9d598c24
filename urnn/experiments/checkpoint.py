"""Checkpoints: one safetensors file each, with everything that is no tensor as JSON in its header. Nothing executable.

Note [Complex tensors]
safetensors has no complex128, so a complex tensor is stored as the real one (..., 2) of its parts, and the header lists
the names of those that were complex.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from urnn.experiments.files import write_atomic

KEEP = 2
"""So many checkpoints of a run stay on the disk."""


def save(folder: Path, iteration: int, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Path:
    """Write a checkpoint and remove the oldest ones."""
    import safetensors.torch

    folder.mkdir(parents=True, exist_ok=True)
    complex_names = [name for name, tensor in tensors.items() if tensor.is_complex()]
    stored = {name: _stored(tensor) for name, tensor in tensors.items()}
    header = {"meta": json.dumps(meta), "complex": json.dumps(complex_names)}
    path = folder / f"{iteration:09d}.safetensors"
    write_atomic(path, safetensors.torch.save(stored, metadata=header))
    for old in found(folder)[:-KEEP]:
        old.unlink()
    return path


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, on the CPU, and the rest."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata()
            complex_names = set(json.loads(header["complex"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            meta: dict[str, Any] = json.loads(header["meta"])
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected a checkpoint of a run, got {error}") from error
    return {n: torch.view_as_complex(t) if n in complex_names else t for n, t in tensors.items()}, meta


def found(folder: Path) -> list[Path]:
    """The checkpoints in ``folder``, oldest first."""
    return sorted(folder.glob("*.safetensors"))


def flatten(prefix: str, tree: Any, tensors: dict[str, Tensor]) -> Any:
    """``tree`` with its tensors moved to ``tensors``, each under the path that leads to it; the rest is JSON."""
    if isinstance(tree, Tensor):
        tensors[prefix] = tree
        return {"tensor": prefix}
    if isinstance(tree, dict):
        return {"dict": [[key, flatten(f"{prefix}/{key}", value, tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [flatten(f"{prefix}/{i}", value, tensors) for i, value in enumerate(tree)]}
    return {"value": tree}


def unflatten(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of ``flatten``."""
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: unflatten(value, tensors) for key, value in content}
    if kind in ("list", "tuple"):
        made = [unflatten(value, tensors) for value in content]
        return tuple(made) if kind == "tuple" else made
    return content


def _stored(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().cpu()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.clone(memory_format=torch.contiguous_format)  # tensors that share memory are refused otherwise

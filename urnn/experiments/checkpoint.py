"""Checkpoints: one file each with the tensors, and with all that is no tensor as JSON. Nothing executable."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from urnn._storage import pack, unpack
from urnn.experiments.files import write_atomic


def save(folder: Path, iteration: int, tensors: dict[str, Tensor], meta: dict[str, Any], keep: int = 2) -> Path:
    """Write a checkpoint and remove all but the last ``keep``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{iteration:09d}.safetensors"
    write_atomic(path, pack(tensors, meta)[0])
    for old in found(folder)[:-keep]:
        old.unlink()
    return path


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, on the CPU, and the rest.

    Raises:
        ValueError: it is damaged, or no checkpoint.
    """
    try:
        stored = unpack(path)
        if not isinstance(stored.meta, dict):
            raise ValueError(f"{type(stored.meta).__name__} where there should be a dict")
    except ValueError as error:
        raise ValueError(f"{path}: expected a checkpoint of a run, got {error}") from error
    return stored.tensors, stored.meta


def newest(folder: Path, passed: Callable[[str], None]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest checkpoint that is whole. Damaged ones are renamed, and ``passed`` is told of each."""
    for path in reversed(found(folder)):
        try:
            return load(path)
        except ValueError as error:
            aside = path.with_name(f"{path.name}.damaged")
            os.replace(path, aside)
            passed(f"{error}. It is now {aside.name}, and the run goes on from the one before, or from its start.")
    return None


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
    """The inverse of ``flatten``.

    Raises:
        TypeError, ValueError, KeyError: for a tree that ``flatten`` did not make.
    """
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: unflatten(value, tensors) for key, value in content}
    if kind in ("list", "tuple"):
        made = [unflatten(value, tensors) for value in content]
        return tuple(made) if kind == "tuple" else made
    return content

"""Models as folders: ``config.json`` with what a constructor needs, ``model.safetensors`` with the values.

Note [Folders from strangers]
Nothing in a folder is executed: classes and families are names in tables. The sizes in ``config.json`` are bounded by
the size of the file of values, and a model without memory (on the meta device) is made of them first. Only when the
file holds exactly its tensors is anything of that size allocated, and only what is finite and unitary is handed out.
"""

import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from urnn._checks import PRECISIONS, check_choice, format_shape
from urnn._storage import HEADER_LIMIT, pack, parse_json, read_text, unpack, write_atomic
from urnn.nn import ComplexLinear, ComplexToReal, ModReLU, UnitaryRNN, UnitaryRNNCell
from urnn.nn.recurrent import Recurrent
from urnn.parametrizations import PARAMETRIZATIONS, Parametrization
from urnn.state import check_unitary, load_state_dict

CONFIG, VALUES = "config.json", "model.safetensors"
VERSION = 1
"""Of the format."""
CONFIG_LIMIT = 2**20
"""No configuration is larger, in bytes."""
MAX_LAYERS = 1000
CLASSES: dict[str, type[nn.Module]] = {
    "UnitaryRNN": UnitaryRNN,
    "UnitaryRNNCell": UnitaryRNNCell,
    "ComplexToReal": ComplexToReal,
    "ComplexLinear": ComplexLinear,
    "ModReLU": ModReLU,
}
"""What a folder may hold, alone or as parts of an ``nn.ModuleDict``."""
DTYPES = {"float32": torch.float32, "float64": torch.float64}
_SIZES = ("input_size", "hidden_size", "in_features", "out_features", "num_features")
_OF_ALL_FAMILIES = set(inspect.signature(Parametrization).parameters)


def save_pretrained(model: nn.Module, folder: str | Path) -> None:
    """Write ``model`` to ``folder``, for ``from_pretrained``.

    Args:
        model: a ``UnitaryRNN``, ``UnitaryRNNCell``, ``ComplexToReal``, ``ComplexLinear`` or ``ModReLU``, or an
            ``nn.ModuleDict`` of them, with a family of ``urnn.PARAMETRIZATIONS``.
        folder: made if it is not there; a model that it holds is replaced.

    Raises:
        TypeError, ValueError: the model cannot be saved, and why; nothing was written.
        OSError: the folder cannot be written.

    >>> import tempfile, urnn
    >>> model = torch.nn.ModuleDict({"rnn": urnn.UnitaryRNN(10, 16), "head": urnn.ComplexToReal(16, 9)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_pretrained(model, folder)
    ...     again = from_pretrained(folder)
    >>> torch.equal(again["rnn"].weight_hh_l0, model["rnn"].weight_hh_l0)
    True
    """
    folder = Path(folder)
    described = _described(model)
    tensors = model.state_dict()
    content, checksum = pack(tensors, None)
    _check_tensors(_skeleton(described, len(content)), tensors)
    for name, tensor in tensors.items():
        if (tensor.is_complex() or tensor.is_floating_point()) and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name}: expected finite entries, got NaN or inf")
    check_unitary(model)
    config = {"format": "urnn", "version": VERSION, "sha256": checksum, "model": described}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / VALUES, content)
        write_atomic(folder / CONFIG, (json.dumps(config, indent=1) + "\n").encode())
    except OSError as error:
        raise OSError(error.errno, f"{folder}: expected to write a model here, got: {error.strerror}") from error


def from_pretrained(folder: str | Path, device: torch.device | str | None = None) -> nn.Module:
    """The model that ``save_pretrained`` wrote to ``folder``, which may come from anywhere: nothing in it is executed.

    Args:
        folder: a folder on this machine.
        device: where the model is to lie; default: the CPU.

    Raises:
        ValueError: names the file or the parameter, what was expected and what came.
        OSError: a file is missing or cannot be read.
    """
    folder = Path(folder)
    try:
        config = _read_config(folder / CONFIG)
        described = config["model"]
        size = (folder / VALUES).stat().st_size
        skeleton = _skeleton(described, size)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: sizes whose product is beyond 64 bits
        raise ValueError(f"{folder / CONFIG}: expected the configuration of a model, got an error: {error}") from error
    try:
        expected = sum(t.numel() * t.element_size() for t in skeleton.state_dict().values())
        stored = unpack(folder / VALUES, limit=expected + HEADER_LIMIT)
        if stored.checksum != config["sha256"]:
            raise ValueError(
                f"a file that {CONFIG} does not belong to. Both are of different models, "
                "or saving was interrupted; saving the model again mends that"
            )
        _check_tensors(skeleton, stored.tensors)
        model = _build(described, None)
        load_state_dict(model, stored.tensors)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / VALUES}: expected the values of a model, got an error: {error}") from error
    return model if device is None else model.to(device)


def _described(model: nn.Module) -> dict[str, Any]:
    """What ``_build`` makes such a model of."""
    if type(model) is nn.ModuleDict:
        return {"class": "ModuleDict", "modules": {name: _layer(part, name) for name, part in model.items()}}
    return _layer(model, "model")


def _layer(module: nn.Module, name: str) -> dict[str, Any]:
    kind = type(module).__name__
    if CLASSES.get(kind) is not type(module):
        raise TypeError(
            f"{name}: expected one of {sorted(CLASSES)}, or a ModuleDict of them, got {kind}. "
            "For other models, save model.state_dict() and read it with urnn.load_state_dict."
        )
    names = [n for n in inspect.signature(type(module)).parameters if n != "device"]
    values = {n: _READERS[n](module) if n in _READERS else getattr(module, n) for n in names}
    half = {"half_gradient": True} if getattr(module, "half_gradient", False) else {}
    return {"class": kind, **values, **half}


def _family(rnn: Any) -> str | dict[str, Any]:
    """The family of W, which must be the same in all layers and in the table."""
    found = []
    for suffix in rnn._suffixes:
        family = rnn._family(suffix)
        if family is None:
            made = rnn.parametrization
            made = made.func if isinstance(made, partial) else made
            kind: Any = PARAMETRIZATIONS.get(made, made) if isinstance(made, str) else made
        else:
            kind = type(family)
        names = [name for name, cls in PARAMETRIZATIONS.items() if cls is kind]
        if not names:
            raise TypeError(
                f"parametrization: expected a family of urnn.PARAMETRIZATIONS, got {kind!r}. A callable of your own "
                "cannot be saved: save model.state_dict() and read it with urnn.load_state_dict."
            )
        found.append({"family": names[0], **(family.options() if family is not None else {})})
    if any(other != found[0] for other in found):
        raise ValueError(f"parametrization: expected one family with one set of options in all layers, got {found}")
    return found[0]["family"] if len(found[0]) == 1 else found[0]


_READERS: dict[str, Callable[[Any], Any]] = {
    "bias": lambda m: m.bias_is_learned if isinstance(m, Recurrent) else m.bias is not None,
    "initial_state": lambda m: m.initial_state_kind,
    "parametrization": _family,
    "dtype": lambda m: str(PRECISIONS[next(m.parameters()).dtype][0]).removeprefix("torch."),
}
"""Arguments of constructors that do not lie in an attribute of their name."""


def _read_config(path: Path) -> dict[str, Any]:
    config = parse_json(read_text(path, CONFIG_LIMIT))
    if not isinstance(config, dict) or config.get("format") != "urnn" or not isinstance(config.get("model"), dict):
        raise ValueError("expected a file of urnn.save_pretrained, with format and model")
    if config.get("version") != VERSION:
        raise ValueError(f"version: expected {VERSION}, got {config.get('version')!r}. A newer urnn may read it.")
    if not isinstance(config.get("sha256"), str):
        raise ValueError(f"sha256: expected the checksum of {VALUES}, got {config.get('sha256')!r}")
    return config


def _skeleton(described: Mapping[str, Any], size: int) -> nn.Module:
    """The model without memory; its sizes are bounded by that of the file of its values, in bytes."""
    parts = _parts(described)
    for part in parts.values():
        _check_sizes(part, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is built again
        return _build(described, "meta")


def _parts(described: Mapping[str, Any]) -> dict[str, Any]:
    if described.get("class") != "ModuleDict":
        return {"": described}
    parts = described.get("modules")
    if not isinstance(parts, dict) or len(parts) > MAX_LAYERS or not all(isinstance(p, dict) for p in parts.values()):
        raise ValueError(f"modules: expected at most {MAX_LAYERS} layers by name")
    return parts


def _check_sizes(part: Mapping[str, Any], size: int) -> None:
    """No part has a side longer than the file of values, and no family more factors than fit into it."""
    n, family = part.get("hidden_size", 1), part.get("parametrization")
    options = family if isinstance(family, dict) else {"family": family}
    factors = [v for v in options.values() if isinstance(v, int)] or ([n] if "givens" in options.values() else [])
    bounds = [
        *((name, part[name], size) for name in _SIZES if name in part),
        ("num_layers", part.get("num_layers", 1), MAX_LAYERS),
        *(("parametrization", n * count, size) for count in factors if isinstance(n, int)),
    ]
    for name, value, bound in bounds:
        if isinstance(value, int) and value > bound:
            raise ValueError(f"{name}: expected no more than {bound}, as {VALUES} has {size} bytes, got {value}")


def _build(described: Mapping[str, Any], device: str | None) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # its first values are of no use
        layers = {name: _build_layer(part, device) for name, part in _parts(described).items()}
    return nn.ModuleDict(layers) if described.get("class") == "ModuleDict" else layers[""]


def _build_layer(part: Mapping[str, Any], device: str | None) -> nn.Module:
    values = dict(part)
    cls = CLASSES[check_choice("class", values.pop("class", None), CLASSES)]
    half_gradient = values.pop("half_gradient", False)
    known = set(inspect.signature(cls).parameters) - {"device"}
    if unknown := sorted(values.keys() - known):
        raise ValueError(f"{unknown[0]}: expected an argument of {cls.__name__}, one of {sorted(known)}")
    values["dtype"] = DTYPES[check_choice("dtype", values.get("dtype"), DTYPES)]
    if "parametrization" in known:
        values["parametrization"] = _maker(values.get("parametrization", "full"))
    module = cls(**values, device=device)
    if half_gradient:
        if half_gradient is not True or not isinstance(module, Recurrent):
            raise ValueError(f"half_gradient: expected true or false, and of a recurrence, got {half_gradient!r}")
        module.half_gradient = True
    return module


def _maker(family: Any) -> str | Callable[..., Parametrization]:
    """``_family``'s inverse."""
    if not isinstance(family, dict):
        return check_choice("parametrization", family, PARAMETRIZATIONS)
    options = dict(family)
    make = PARAMETRIZATIONS[check_choice("family", options.pop("family", None), PARAMETRIZATIONS)]
    known = set(inspect.signature(make).parameters) - _OF_ALL_FAMILIES
    if unknown := sorted(options.keys() - known):
        raise ValueError(f"{unknown[0]}: expected an option of {make.__name__}, one of {sorted(known)}")
    return partial(make, **options)


def _check_tensors(skeleton: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """``tensors`` must be those of the model: names, shapes and types."""
    expected = skeleton.state_dict()
    if expected.keys() != tensors.keys():
        missing, more = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
        raise ValueError(f"expected the tensors of the model; missing are {missing}, and there are {more} more")
    for name, tensor in expected.items():
        found = tensors[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise ValueError(
                f"{name}: expected shape {format_shape(tensor.shape)} and {tensor.dtype}, "
                f"got {format_shape(found.shape)} and {found.dtype}"
            )

"""Settings: fields of frozen dataclasses with a line of help each, and how text becomes their values."""

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from urnn._checks import check_number


def setting(default: Any, text: str, place: bool = False) -> Any:
    """A field with its default and its line of help. A ``place`` says where something lies, not what is computed."""
    return field(default=default, metadata={"help": text, "place": place})


@dataclass(frozen=True)
class Setting:
    """What is known of one field."""

    name: str
    kind: Any
    default: Any
    help: str = ""
    place: bool = False


def settings_of(cls: type) -> dict[str, Setting]:
    """All fields of a dataclass, by name."""
    kinds = typing.get_type_hints(cls)
    return {
        f.name: Setting(f.name, kinds[f.name], None if f.default is MISSING else f.default, **f.metadata)
        for f in fields(cls)
    }


def unknown(what: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that does not exist, with the nearest ones that do."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f" The nearest are {', '.join(near)}." if near else ""
    return ValueError(f"{what}: expected a known name, got {name!r}.{hint}")


def parse(name: str, text: str, kind: Any) -> Any:
    """``text`` as a value of ``kind``."""
    options = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    if type(None) in options and text.lower() in ("none", "null", ""):
        return None
    (kind,) = (option for option in options if option is not type(None))
    try:
        if kind is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if typing.get_origin(kind) is tuple:
            parts = text.strip("()[] ").split(",")
            return tuple(inner(part) for inner, part in zip(typing.get_args(kind), parts, strict=True))
        return kind(text)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{name}: expected {describe(kind)}, got {text!r}") from error


def describe(kind: Any) -> str:
    """A type in words."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return words.get(kind, "two numbers such as 0.9,0.99")


def check_kinds(cls: type, values: Mapping[str, Any]) -> None:
    """Each value must be of its field's type; a whole number serves as a number."""
    for name, s in settings_of(cls).items():
        value = values[name]
        options = typing.get_args(s.kind) if typing.get_origin(s.kind) is types.UnionType else (s.kind,)
        if value is None and type(None) in options:
            continue
        (kind,) = (option for option in options if option is not type(None))
        if typing.get_origin(kind) is tuple:
            right = isinstance(value, tuple) and len(value) == len(typing.get_args(kind))
        elif kind is float:
            check_number(name, value, float("-inf"))
            right = True
        else:
            right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not right:
            raise TypeError(f"{name}: expected {describe(kind)}, got {value!r}")

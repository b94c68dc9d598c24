"""The command line that makes a run again."""

import shlex
from collections.abc import Mapping
from typing import Any

from urnn.experiments.presets import PRESETS, configure

FLAGS = {"model": "--model", "hidden": "--hidden", "time_steps": "--T", "seed": "--seed", "device": "--device"}
"""Settings with a flag of their own; all others are given by ``--set``."""


def command(config: Mapping[str, Any], preset: str | None = None) -> str:
    """``urnn train`` with all that differs from the recipe, and from the preset where there is one.

    >>> from urnn.experiments.presets import configure
    >>> command(configure("best", task="copy", own={"time_steps": 100, "lr": 5e-4}).flat())
    'urnn train copy --T 100 --set lr=0.0005'
    """
    known = preset if preset in PRESETS else None
    task, recipe, model = (str(config[name]) for name in ("task", "recipe", "model"))
    base = configure(recipe, known, task, {"model": model}).flat()
    usual = configure(recipe, known, task).model
    words = ["--preset", known] if known else [task]
    words += ["--recipe", recipe] if recipe != "best" else []
    words += ["--model", model] if model != usual else []
    for name, value in config.items():
        value = tuple(value) if isinstance(value, list) else value
        if name in ("task", "recipe", "model") or name not in base or base[name] == value:
            continue
        if name == "hidden" and config.get("parameters"):
            continue  # it follows from the number of parameters
        text = _text(value)
        words += [FLAGS[name], text] if name in FLAGS else ["--set", f"{name}={text}"]
    return shlex.join(["urnn", "train", *words])


def _text(value: Any) -> str:
    """As ``--set`` reads it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

"""Recipes, and the cells of the paper's tables and figures.

The settings of a run are, each over the one before: the defaults of the fields, the recipe of its task, what that
recipe says of its model, the row of the preset, what the row says of the recipe, and the user's own.
"""

from collections.abc import Mapping
from typing import Any

from urnn._checks import check_choice
from urnn.experiments.config import Config, resolve
from urnn.experiments.settings import unknown
from urnn.experiments.tasks import TASKS
from urnn.optim.rmsprop import PAPER

Settings = dict[str, Any]

_LSTM_BEST: Settings = {"lr": 1e-2, "clip_norm": 1.0}
_LSTM_PAPER: Settings = {"clip_value": 1.0}
_LSTM_MNIST: Settings = {"forget_bias": 1.0, "clip_norm": 1.0}  # what the Keras of the released code did
_BY_EPOCHS: Settings = {"log_every": 50, "eval_every": 1100, "checkpoint_every": 1100}  # at batch_size 50

RECIPES: dict[str, dict[str, Settings]] = {
    "copy": {
        "best": {"max_iterations": 400},
        "paper": {
            **PAPER["copy"],
            "unitary_betas": None,
            "polish": False,
            "schedule": "constant",
            "initial_w": "restricted",
            "data": "fixed",
            "test_sequences": 10_000,
            "max_iterations": 5000,
        },
    },
    "sysid": {
        "best": {
            "optimizer": "adam",
            "lr": 1e-1,
            "unitary_lr": 3e-2,
            "batch_size": 50,
            "max_iterations": 4000,
            "growth": 0.8,
            "eval_every": 200,
            "log_every": 20,
            "checkpoint_every": 400,
        },
        "paper": {  # no curriculum; 100 epochs of 400 iterations
            **PAPER["copy"],
            "unitary_betas": None,
            "polish": False,
            "schedule": "constant",
            "batch_size": 50,
            "max_iterations": 40_000,
            "eval_every": 400,
            "log_every": 50,
            "checkpoint_every": 2000,
            "growth": 0.0,
        },
    },
    "speech": {
        "best": {
            "optimizer": "adam",
            "lr": 1e-2,
            "gain": 0.1,
            "bias_init": -0.1,
            "batch_size": 16,
            "max_iterations": 6000,
            "eval_every": 100,
            "log_every": 20,
            "checkpoint_every": 500,
        },
        "paper": {  # 130 iterations were an epoch; patience 100 epochs
            **PAPER["speech"],
            "unitary_betas": None,
            "polish": True,  # features in raw dB make such steps that W drifts by 2e-3 within 260 of them
            "schedule": "constant",
            "initial_w": "restricted",
            "normalize": False,
            "add": "none",
            "batch_size": 28,
            "max_iterations": 13_000,
            "eval_every": 130,
            "patience": 100,
            "log_every": 10,
            "checkpoint_every": 1300,
        },
    },
    "mnist": {
        "best": {**_BY_EPOCHS, "optimizer": "adam", "batch_size": 50, "epochs": 50, "bias_width": 0.0},
        "paper": {
            **PAPER["mnist"],
            **_BY_EPOCHS,
            "lr": 1e-4,
            "unitary_betas": None,
            "polish": False,
            "schedule": "constant",
            "initial_w": "restricted",
            "bias_width": 0.0,
            "batch_size": 50,
            "epochs": 200,
            "patience": 5,
        },
    },
}
OF_MODEL: dict[str, dict[str, dict[str, Settings]]] = {
    "copy": {
        "best": {
            "lstm": _LSTM_BEST,
            "gru": _LSTM_BEST,
            "rnn": {"clip_norm": 1.0},
        },
        "paper": {
            "lstm": _LSTM_PAPER,
            "gru": _LSTM_PAPER,
            "rnn": _LSTM_PAPER,
            "restricted": {"initial_w": "family"},
            "householder": {"initial_w": "family"},
            "givens": {"initial_w": "family"},
        },
    },
    "speech": {
        "best": {
            "lstm": {"gain": 1.0, "lr": 5e-3, "clip_norm": 1.0},
            "gru": {"gain": 1.0, "lr": 5e-3, "clip_norm": 1.0},
            "rnn": {"gain": 1.0, "lr": 1e-3, "clip_norm": 1.0},
        },
        "paper": {
            "lstm": _LSTM_PAPER,
            "gru": _LSTM_PAPER,
            "rnn": _LSTM_PAPER,
            "restricted": {"initial_w": "family"},
            "householder": {"initial_w": "family"},
            "givens": {"initial_w": "family"},
        },
    },
    "sysid": {"best": {"householder": {"lr": 3e-2}}, "paper": {}},
    "mnist": {
        "best": dict.fromkeys(("lstm", "gru", "rnn"), _LSTM_MNIST),
        "paper": {
            **dict.fromkeys(("lstm", "gru", "rnn"), {**_LSTM_MNIST, "lr": 1e-3}),
            **dict.fromkeys(("restricted", "householder", "givens"), {"initial_w": "family"}),
        },
    },
}

_T1000: Settings = {
    "task": "copy",
    "time_steps": 1000,
    "best": {"max_iterations": 1500, "stop_after_solved": 1000},
    "paper": {"max_iterations": 5000, "stop_after_solved": 1000},
}
_T2000: Settings = {
    "task": "copy",
    "time_steps": 2000,
    "best": {"max_iterations": 2000, "stop_after_solved": 1000},
    "paper": {"max_iterations": 10_000, "stop_after_solved": 1000},
}
_LONG: Settings = {"task": "copy", "model": "full", "best": {"max_iterations": 4000, "stop_after_solved": 500}}
_TABLE1: Settings = {"task": "sysid", "model": "full,restricted"}
_CAPACITY: Settings = {"task": "sysid", "systems": "haar", "best": {"max_iterations": 2000}}
_TABLE2 = {
    "lstm": (84, 120, 158),
    "restricted": (128, 158, 192, 256, 378),
    "full": (128, 192, 256),
}
"""Hidden sizes of Table 2."""
_SHARES = {8: (1, 2, 4, 6, 8), 16: (2, 4, 8, 12, 16), 32: (4, 8, 16, 24, 32)}
"""Reflections and layers of rotations, by size."""
_TABLE3: dict[str, Settings] = {
    "lstm-128": {"model": "lstm", "hidden": 128},
    "lstm-256": {"model": "lstm", "hidden": 256},
    "restricted-512": {"model": "restricted", "hidden": 512},
    "full-116": {"model": "full", "hidden": 116, "paper": {"lr": 1e-3}},
    "full-512": {"model": "full", "hidden": 512},
}
_MNIST: dict[str, Settings] = {
    "mnist": {"task": "mnist", "order": "rows"},
    "mnist-permuted": {"task": "mnist", "order": "permuted"},
}
_FULL_512: Settings = {**_MNIST["mnist-permuted"], **_TABLE3["full-512"]}
_SEARCH: dict[str, Settings] = {
    "base": {},
    **{f"lr-{lr:g}": {"lr": lr} for lr in (3e-4, 3e-3)},
    **{f"unitary_lr-{lr:g}": {"unitary_lr": lr} for lr in (1e-4, 1e-3, 3e-3)},
    **{f"bias_lr-{lr:g}": {"bias_lr": lr} for lr in (1e-4, 1e-2)},
    **{f"batch_size-{rows}": {"batch_size": rows} for rows in (20, 100, 200)},
    **{f"initial_w-{name}": {"initial_w": name} for name in ("restricted", "uniform", "even")},
    "initial_spread-0.5": {"initial_w": "uniform", "initial_spread": 0.5},
    "bias_constraint-nonpositive": {"bias_constraint": "nonpositive"},
    "clip_norm-1": {"clip_norm": 1.0},
    "gradient_noise-0.001": {"gradient_noise": 1e-3},
    "warmup-500": {"warmup": 500},
    "rmsprop": {"optimizer": "rmsprop"},
    "unitary_betas-0.95,0.999": {"unitary_betas": (0.95, 0.999)},
    "dropout-0.1": {"dropout": 0.1},
    "label_smoothing-0.1": {"label_smoothing": 0.1},
    "readout-mean": {"readout": "mean"},
    "readout-times": {"readout": "times"},
    "num_layers-2": {"num_layers": 2},
    "lstm": {"model": "lstm"},
    **{f"lstm-lr-{lr:g}": {"model": "lstm", "lr": lr} for lr in (3e-4, 3e-3, 1e-2)},
    **{f"lstm-forget_bias-{b:g}": {"model": "lstm", "forget_bias": b} for b in (0.0, 3.0)},
    "lstm-clip_norm-0": {"model": "lstm", "clip_norm": 0.0},
    "lstm-batch_size-100": {"model": "lstm", "batch_size": 100},
}
"""Steps from the best recipe at N = 128, each by one setting, for the full uRNN and the LSTM of the same N."""
_SUBSET: Settings = {**_MNIST["mnist-permuted"], "train_images": 5000, "best": {"epochs": 20}, "paper": {"epochs": 20}}
_N512: Settings = {**_MNIST["mnist-permuted"], "hidden": 512}

PRESETS: dict[str, Settings] = {
    "copy-T1000/full-128": {**_T1000, "model": "full", "hidden": 128},
    "copy-T1000/restricted-470": {**_T1000, "model": "restricted", "hidden": 470},
    "copy-T1000/lstm-68": {**_T1000, "model": "lstm", "hidden": 68},
    "copy-T1000/householder": {**_T1000, "model": "householder", "parameters": 21641},
    "copy-T1000/givens": {**_T1000, "model": "givens", "parameters": 21641},
    "copy-T1000/exponential": {**_T1000, "model": "exponential", "parameters": 21641},
    "copy-T1000/cayley": {**_T1000, "model": "cayley", "parameters": 21641},
    "copy-T1000/rnn": {**_T1000, "model": "rnn", "parameters": 21641},
    "copy-T2000/full-128": {**_T2000, "model": "full", "hidden": 128},
    "copy-T2000/restricted-470": {**_T2000, "model": "restricted", "hidden": 470},
    "copy-T2000/lstm-68": {**_T2000, "model": "lstm", "hidden": 68},
    "copy-T2000/householder": {**_T2000, "model": "householder", "parameters": 21641},
    "copy-T2000/givens": {**_T2000, "model": "givens", "parameters": 21641},
    "copy-T2000/exponential": {**_T2000, "model": "exponential", "parameters": 21641},
    "copy-T2000/cayley": {**_T2000, "model": "cayley", "parameters": 21641},
    "copy-T2000/rnn": {**_T2000, "model": "rnn", "parameters": 21641},
    "copy-T5000/full-128": {**_LONG, "time_steps": 5000},
    "copy-T10000/full-128": {**_LONG, "time_steps": 10_000},
    # Each of these is four cells of Table 1, both systems by both learners, which train as one ensemble.
    "sysid-N4": {**_TABLE1, "hidden": 4},
    "sysid-N6": {**_TABLE1, "hidden": 6},
    "sysid-N7": {**_TABLE1, "hidden": 7},
    "sysid-N8": {**_TABLE1, "hidden": 8},
    "sysid-N16": {**_TABLE1, "hidden": 16},
    "sysid-N64": {**_TABLE1, "hidden": 64, "best": {"max_iterations": 2000}},
    "sysid-N128": {**_TABLE1, "hidden": 128, "model": "full", "best": {"max_iterations": 2000}},
    **{
        f"speech/{model}-{n}": {"task": "speech", "model": model, "hidden": n}
        for model, sizes in _TABLE2.items()
        for n in sizes
    },
    # Beyond the paper's sizes.
    "speech/full-512": {"task": "speech", "model": "full", "hidden": 512},
    "speech/full-256x2": {"task": "speech", "model": "full", "hidden": 256, "num_layers": 2},
    # The paper's future work: a random unitary system, and families between the restricted and the full one.
    **{f"capacity-N{n}/full": {**_CAPACITY, "hidden": n, "model": "full"} for n in _SHARES},
    **{f"capacity-N{n}/restricted": {**_CAPACITY, "hidden": n, "model": "restricted"} for n in _SHARES},
    **{
        f"capacity-N{n}/householder-{k}": {**_CAPACITY, "hidden": n, "model": "householder", "reflections": k}
        for n, shares in _SHARES.items()
        for k in shares
    },
    **{
        f"capacity-N{n}/givens-{k}": {**_CAPACITY, "hidden": n, "model": "givens", "rotations": k}
        for n, shares in _SHARES.items()
        for k in shares
    },
    **{f"{task}/{name}": {**order, **row} for task, order in _MNIST.items() for name, row in _TABLE3.items()},
    # The trade-off at the end of section 5.3: families between 7 N and N^2 parameters.
    **{
        f"mnist-permuted/householder-{k}": {**_N512, "model": "householder", "reflections": k} for k in (4, 16, 64, 256)
    },
    **{f"mnist-permuted/givens-{k}": {**_N512, "model": "givens", "rotations": k} for k in (8, 32, 128)},
    **{
        f"mnist-search/{name}": {**_MNIST["mnist-permuted"], "model": "full", "hidden": 128, "epochs": 10, **row}
        for name, row in _SEARCH.items()
    },
    "mnist-subset/full-128": {**_SUBSET, "model": "full", "hidden": 128},
    "mnist-subset/lstm": {**_SUBSET, "model": "lstm", "parameters": 19594},
    "mnist-permuted/full-512-two-layers": {**_FULL_512, "num_layers": 2},
    "mnist-permuted/full-512-mean": {**_FULL_512, "readout": "mean"},
    "mnist-permuted/full-512-times": {**_FULL_512, "readout": "times"},
    "mnist-permuted/full-512-two-layers-times": {**_FULL_512, "num_layers": 2, "readout": "times"},
}

_FAMILIES = ("full-128", "restricted-470", "lstm-68", "householder", "givens", "exponential", "cayley", "rnn")
GRIDS: dict[str, dict[str, Any]] = {
    "figure1": {"cells": [f"copy-T{T}/{model}" for T in (1000, 2000) for model in _FAMILIES], "seeds": 5},
    "figure1-long": {"cells": ["copy-T5000/full-128", "copy-T10000/full-128"], "seeds": 5},
    "table1": {"cells": [f"sysid-N{n}" for n in (4, 6, 7, 8, 16)], "seeds": 1},
    "table1-large": {"cells": ["sysid-N64", "sysid-N128"], "seeds": 1},
    "table2": {"cells": [f"speech/{model}-{n}" for model, sizes in _TABLE2.items() for n in sizes], "seeds": 3},
    "figure2": {"cells": [f"speech/{model}-{n}" for model, sizes in _TABLE2.items() for n in sizes], "seeds": 3},
    "table2-large": {"cells": ["speech/full-512", "speech/full-256x2"], "seeds": 3},
    "capacity": {"cells": [name for name in PRESETS if name.startswith("capacity-")], "seeds": 1},
    "table3": {
        "cells": [f"{task}/{name}" for task in _MNIST for name in _TABLE3],
        "seeds": 1,
        "best": {f"{task}/{name}": 3 for task in _MNIST for name in ("full-116", "full-512")},
    },
    "table3-capacity": {
        "cells": [
            "mnist-permuted/restricted-512",
            *(name for name in PRESETS if name.startswith(("mnist-permuted/householder", "mnist-permuted/givens"))),
            "mnist-permuted/full-512",
        ],
        "seeds": 1,
    },
    "table3-richer": {
        "cells": [name for name in PRESETS if name.startswith("mnist-permuted/full-512-")],
        "seeds": 1,
    },
    "table3-search": {"cells": [f"mnist-search/{name}" for name in _SEARCH], "seeds": 1},
    "table3-subset": {"cells": ["mnist-subset/full-128", "mnist-subset/lstm"], "seeds": 1},
}
"""Cells, how many seeds each has, and by recipe those cells that have more."""
ALIASES = {"figure3": "table3"}
"""Targets whose runs are those of another: Figure 3 shows how the models of Table 3 learn."""


def seeds_of(grid: str, recipe: str, preset: str) -> int:
    """How many seeds a cell of a grid has."""
    more: dict[str, int] = GRIDS[grid].get(recipe, {})
    return int(more.get(preset, GRIDS[grid]["seeds"]))


def task_of(grid: str) -> str:
    """The task of the cells of a grid."""
    task: str = PRESETS[GRIDS[grid]["cells"][0]]["task"]
    return task


def settings(
    recipe: str = "best", preset: str | None = None, task: str | None = None, own: Mapping[str, Any] | None = None
) -> Settings:
    """The settings of a run before defaults, from a preset or a task, a recipe, and the user's ``own``."""
    own = dict(own or {})
    if preset is not None and preset not in PRESETS:
        raise unknown("--preset", preset, PRESETS)
    row = dict(PRESETS[preset]) if preset is not None else {}
    of_recipe = {name: row.pop(name, {}) for name in ("best", "paper")}
    check_choice("--recipe", recipe, of_recipe)
    if task is not None and row.get("task", task) != task:
        raise ValueError(f"--preset: expected one of the task {task!r}, got {preset!r}")
    row["task"] = task = row.get("task", task)
    if task not in TASKS:
        raise unknown("task", str(task), TASKS)
    model = own.get("model", row.get("model", "full"))
    common = {**RECIPES[task][recipe], **OF_MODEL[task][recipe].get(model, {})}
    return {"recipe": recipe, **common, **row, **of_recipe[recipe], **own}


def configure(
    recipe: str = "best", preset: str | None = None, task: str | None = None, own: Mapping[str, Any] | None = None
) -> Config:
    """The settings of a run, complete and checked.

    >>> configure("paper", "copy-T2000/lstm-68").clip_value
    1.0
    """
    return resolve(settings(recipe, preset, task, own))

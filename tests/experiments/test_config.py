"""Settings: from text and from files to a checked configuration, or to an error that names what is wrong."""

import json

import pytest

from urnn.experiments.config import Config, all_settings, from_text, resolve
from urnn.experiments.settings import parse, settings_of
from urnn.experiments.tasks import TASKS


@pytest.mark.parametrize("task", TASKS)
def test_every_setting_has_one_name_and_a_line_of_help(task):
    own, common = settings_of(TASKS[task]), settings_of(Config)
    assert not own.keys() & common.keys()
    assert all(known.help for known in all_settings(task).values())


@pytest.mark.parametrize("task", TASKS)
def test_a_configuration_survives_json(task):
    config = resolve({"task": task, "unitary_lr": None, "betas": (0.5, 0.75)})
    assert resolve(json.loads(json.dumps(config.flat()))) == config


def test_settings_go_to_the_task_and_to_the_run():
    config = resolve({"task": "copy", "time_steps": 7, "hidden": 5})
    assert (config.task, config.problem.time_steps, config.hidden) == ("copy", 7, 5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lr=3e-4", 3e-4),
        ("unitary_lr=none", None),
        ("unitary_lr=0.5", 0.5),
        ("unitary_betas=0.8,0.95", (0.8, 0.95)),
        ("unitary_betas=none", None),
        ("polish=no", False),
        ("tensorboard=true", True),
        ("hidden=12", 12),
        ("data=fixed", "fixed"),
        ("bias_constraint=nonpositive", "nonpositive"),
    ],
)
def test_text_becomes_the_value_of_its_kind(text, value):
    assert from_text("copy", [text]) == {text.partition("=")[0]: value}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["hiden=3"], "--set: expected a known name, got 'hiden'. The nearest are hidden"),
        (["time_step=3"], "time_steps"),
        (["hidden"], "--set: expected KEY=VALUE, got 'hidden'"),
        (["hidden=x"], "hidden: expected a whole number, got 'x'"),
        (["lr=fast"], "lr: expected a number, got 'fast'"),
        (["polish=perhaps"], "polish: expected true or false, got 'perhaps'"),
        (["betas=0.9"], "betas: expected two numbers such as 0.9,0.99, got '0.9'"),
        (["starts=3"], "--set: expected a known name, got 'starts'"),  # a setting of another task
    ],
)
def test_text_that_is_wrong_is_named(pairs, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        from_text("copy", pairs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "coyp"}, "task: expected a known name, got 'coyp'. The nearest are copy"),
        ({"time_steps": 0}, "time_steps: expected an int in .1, 10000000., got 0"),
        ({"time_steps": 10**9}, "time_steps: expected an int in .1, 10000000., got 1000000000"),
        ({"hidden": 0}, "hidden: expected an int >= 1, got 0"),
        ({"hidden": 2.5}, "hidden: expected a whole number, got 2.5"),
        ({"hidden": True}, "hidden: expected a whole number, got True"),
        ({"model": "fulll"}, "model: expected one of .* Did you mean 'full'"),
        ({"model": "full,restricted"}, "model: expected one of"),
        ({"recipe": "worst"}, "recipe: expected one of"),
        ({"optimizer": "adamw"}, "optimizer: expected one of .* Did you mean 'adam'"),
        ({"schedule": "linear"}, "schedule: expected one of"),
        ({"dtype": "float16"}, "dtype: expected one of"),
        ({"lr": -1.0}, "lr: expected a number in .0.0, inf., got -1.0"),
        ({"lr": float("nan")}, "lr: expected a number"),
        ({"betas": (0.9,)}, "betas: expected two numbers"),
        ({"max_iterations": 0}, "max_iterations: expected an int >= 1, got 0"),
        ({"checkpoint_every": 15}, "checkpoint_every: expected a multiple of log_every = 10, got 15"),
        ({"patience": 3}, "patience: expected 0 with eval_every=0, got 3. Set eval_every too"),
        ({"data": "offline"}, "data: expected one of"),
        ({"alpha": 1.0}, "alpha: expected a number in .0.0, 1.0., got 1.0"),
        ({"betas": (0.9, 1.5)}, "betas: expected a number in .0.0, 1.0., got 1.5"),
        ({"unitary_betas": (-0.1, 0.9)}, "unitary_betas: expected a number in"),
        ({"backend": "gpuu"}, "backend: expected one of"),
        ({"model": "householder", "hidden": 4}, "reflections: expected an int in .1, 4., got 8"),
        ({"seed": -1}, "seed: expected an int in"),
    ],
)
def test_a_bad_setting_is_named(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        resolve({"task": "copy", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"systems": "Wu,Wx"}, "systems: expected a known name, got 'Wx'"),
        ({"model": "full,restrictd"}, "model: expected one of .* Did you mean 'restricted'"),
        ({"model": "full,lstm"}, "model: expected one of .*, got 'lstm'"),
        ({"first_length": 200}, "first_length: expected an int in .1, 150., got 200"),
        ({"growth": 1.5}, "growth: expected a number in"),
    ],
)
def test_a_bad_setting_of_system_identification_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        resolve({"task": "sysid", **settings})


def test_parse_takes_an_empty_text_as_none_where_none_is_a_value():
    assert parse("unitary_lr", "", float | None) is None

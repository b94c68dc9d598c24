"""The public names: sorted, documented, and shown by an example that runs."""

import importlib
import inspect
import subprocess
import sys

import pytest

import urnn

MODULES = ["urnn", "urnn.capacity", "urnn.linalg", "urnn.nn", "urnn.ops", "urnn.optim", "urnn.parametrizations"]
SHOWN = [
    *(getattr(urnn, name) for name in urnn.__all__ if inspect.isclass(getattr(urnn, name))),
    *(getattr(urnn.optim, name) for name in urnn.optim.__all__),
    *urnn.PARAMETRIZATIONS.values(),
    urnn.unitary,
    urnn.check_unitary,
    urnn.capacity.analyze,
]


@pytest.mark.parametrize("name", MODULES)
def test_names_are_sorted_and_exist(name):
    module = importlib.import_module(name)
    assert sorted(module.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n)) == list(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_public_functions_and_classes_are_documented(name):
    module = importlib.import_module(name)
    for public in module.__all__:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{public}"


@pytest.mark.parametrize("shown", SHOWN, ids=lambda s: s.__name__)
def test_what_users_meet_first_has_an_example(shown):
    assert ">>> " in (shown.__doc__ or ""), shown


def test_version_is_that_of_the_metadata():
    from importlib.metadata import version

    assert urnn.__version__ == version("urnn")


def test_import_is_light():
    """Figures, tables and the command line load when they are asked for."""
    code = "import sys, urnn; print(sorted({'matplotlib', 'typer', 'rich', 'numba'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

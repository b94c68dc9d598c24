"""Imports go one way. The table is the architecture; the syntax trees are held to it."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "urnn"
OPEN = {"_checks", "_module", "_typing"}
"""What every room may import."""
ROOMS = {
    "_checks": set(),
    "_typing": set(),
    "_module": {"linalg"},
    "_storage": set(),
    "linalg": set(),
    "ops": set(),
    "parametrizations": {"linalg"},
    "optim": {"linalg"},
    "nn": {"linalg", "ops", "parametrizations"},
    "capacity": {"linalg", "parametrizations"},
    "state": {"linalg", "parametrizations"},
    "graphs": {"optim"},
    "pretrained": {"_storage", "nn", "parametrizations", "state"},
    "experiments": {"", "_storage", "capacity", "linalg", "nn", "ops", "optim", "parametrizations", "state"},
    "doctor": {"", "linalg", "ops", "optim"},
    "bench": {"", "linalg", "ops"},
    "report": {"", "bench", "capacity", "experiments", "parametrizations"},
    "cli_bench": {"bench"},
    "cli_report": {"report"},
    "cli_speech": {"experiments"},
    "cli": {"", "bench", "capacity", "cli_bench", "cli_report", "cli_speech", "doctor", "experiments"},
    "__main__": {"cli"},
    "": {"capacity", "graphs", "linalg", "nn", "ops", "optim", "parametrizations", "pretrained", "state"},
}
THIRD_PARTY = {
    "numba": {"ops"},
    "llvmlite": {"ops"},
    "cuda": {"ops"},
    "triton": {"ops"},
    "PIL": {"bench"},
    "typer": {"cli", "cli_bench", "cli_report", "cli_speech"},
    "rich": {"bench", "capacity", "cli", "cli_bench", "cli_speech", "experiments"},
    "matplotlib": {"bench", "capacity", "experiments"},
    "numpy": {"experiments", "ops", "parametrizations"},
    "pooch": {"experiments"},
    "jaxtyping": {"_typing"},
    "pesq": {"experiments"},
    "pystoi": {"experiments"},
    "safetensors": {"_storage"},
    "scipy": {"experiments"},
    "soundfile": {"experiments"},
    "tensorboard": {"experiments"},
    "jinja2": {"report"},
    "plotly": {"report"},
}
FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def imports(path: Path) -> set[str]:
    """Full names of all modules that a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {
                f"{node.module}.{alias.name}" if node.module == "urnn" else str(node.module) for alias in node.names
            }
    return names


def own(name: str) -> str | None:
    """The room of an imported name of this package, or None."""
    head, _, rest = name.partition(".")
    if head != "urnn":
        return None
    first = rest.split(".")[0]
    return first if first in ROOMS else ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path):
    here = room(path)
    allowed = ROOMS[here] | OPEN | {here}
    found = {own(name) for name in imports(path)} - {None}
    assert found <= allowed, f"{path} imports {sorted(found - allowed)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_third_parties_stay_in_their_rooms(path):
    heads = {name.split(".")[0] for name in imports(path)}
    for name in heads & set(THIRD_PARTY):
        assert room(path) in THIRD_PARTY[name], f"{path} imports {name}"


def test_every_module_has_a_purpose_and_a_modest_length():
    for path in FILES:
        text = path.read_text()
        assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
        assert len(text.splitlines()) <= 400, f"{path} is no longer one room"


@pytest.mark.parametrize("folder", ["linalg", "optim", "parametrizations"])
def test_the_adjoint_is_written_mH(folder):
    """A plain transpose is ``.mT`` and says so; the spellings that are mistaken for an adjoint do not occur."""
    forbidden = re.compile(r"\.t\(\)|\.T\b|transpose\((-2, -1|-1, -2)\)")
    found = [f"{p}: {hit}" for p in (PACKAGE / folder).glob("*.py") for hit in forbidden.findall(p.read_text())]
    assert not found


def test_no_file_is_large():
    names = subprocess.run(["git", "ls-files", "-z"], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    large = [n for n in names.stdout.split("\0") if n and (PACKAGE.parent / n).stat().st_size > 512_000]
    assert not large

"""Every reader against nonsense: an answer or an error that says what was expected; no crash, no hang, no bulk.

``make test`` tries a few hundred cases of each, ``make test-long`` 10^5 in all and prints how many they were.
"""

import copy
import json
import math
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import urnn
from urnn import _storage, cli
from urnn.experiments import checkpoint, optimizers
from urnn.experiments.config import all_settings, from_text, resolve
from urnn.experiments.folder import RunFolder
from urnn.experiments.presets import configure
from urnn.experiments.tasks import TASKS
from urnn.experiments.train import prepare, restore, train
from urnn.pretrained import CONFIG, VALUES

FEW, ALL = 150, 100_000
"""Cases of each reader in ``make test``, and of all together in ``make test-long``."""
ROOM = 2**31
"""Bytes that the process may grow by in its address space."""

SIZES = st.sampled_from([0, 1, -1, 2, 3, 2**31, 2**63, 10**30, 10**9, 10_000])
LEAVES = st.one_of(st.none(), st.booleans(), SIZES, st.integers(), st.floats(), st.text(max_size=8))
VALUES_OF_JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=6), st.just("tensor")), inner, max_size=3),
    ),
    max_leaves=6,
)


@st.composite
def altered_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes replaced, cut out, put in, or all of them others."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 8))
        content = content[:start] + draw(st.binary(max_size=8)) + content[start + length :]
    return content


@st.composite
def altered_json(draw: st.DrawFn, value: Any) -> Any:
    """A value somewhere in a tree replaced, left out, or put in."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        here = value
        while isinstance(here, dict | list) and here:
            key = draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
            if not isinstance(here[key], dict | list) or not here[key] or draw(st.integers(0, 3)) == 0:
                if draw(st.integers(0, 4)) == 0:
                    del here[key]
                else:
                    here[key] = draw(VALUES_OF_JSON)
                if isinstance(here, dict) and draw(st.integers(0, 4)) == 0:
                    here[draw(st.text(max_size=6))] = draw(VALUES_OF_JSON)
                break
            here = here[key]
    return value


@st.composite
def altered_tensors(draw: st.DrawFn, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Some values, shapes and types others, some tensors missing or more."""
    tensors = dict(tensors)
    for name in draw(st.lists(st.sampled_from(sorted(tensors)), max_size=2, unique=True)):
        t = tensors.pop(name)
        way = draw(st.integers(0, 6))
        if way == 1:
            tensors[draw(st.text(max_size=5))] = t
        elif way == 2:
            tensors[name] = t.flatten()
        elif way == 3:
            tensors[name] = t.real.to(draw(st.sampled_from([torch.float64, torch.int8, torch.bool, torch.float16])))
        elif way == 4:
            tensors[name] = torch.full_like(
                t,
                draw(
                    st.sampled_from([0, 1, 77, 100])
                    if not t.is_floating_point()
                    else st.sampled_from([math.nan, 0.0, 1e38])
                ),
            )
        elif way == 5:
            tensors[name] = t.new_empty((0,))
        elif way == 6:
            tensors[name] = -t if t.dtype not in (torch.bool, torch.uint8) else t
    return tensors


def sealed(content: bytes) -> bytes:
    """``content`` with a checksum that is right, where it has one."""
    place = content.find(b'"sha256":"') + 10
    return content if place < 10 else _storage._sealed(content[:place] + b"0" * 64 + content[place + 64 :], place)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a checkpoint, and saved models."""
    path = tmp_path_factory.mktemp("fuzz")
    own = {"time_steps": 2, "symbols": 1, "hidden": 3, "batch_size": 2, "test_sequences": 2, "max_iterations": 2}
    small = {**own, "log_every": 2, "checkpoint_every": 2, "threads": 1, "tensorboard": False}
    train(RunFolder.create(path / "run", prepare(configure(task="copy", own=small))), Console(quiet=True))
    for family in urnn.PARAMETRIZATIONS:
        rnn = urnn.UnitaryRNN(2, 3, parametrization=family)
        urnn.save_pretrained(torch.nn.ModuleDict({"rnn": rnn, "head": urnn.ComplexToReal(3, 1)}), path / family)
    return path


Case = tuple[st.SearchStrategy[Any], Callable[[Any], Any]]


def _storage_case(folder: Path) -> Case:
    path = folder / "file.safetensors"
    content, _ = _storage.pack({"a": torch.arange(3.0), "z": torch.ones(2, dtype=torch.complex64)}, {"x": [1, "y"]})

    def read(case: tuple[bytes, bool]) -> None:
        path.write_bytes(sealed(case[0]) if case[1] else case[0])
        checkpoint.load(path)

    return st.tuples(altered_bytes(content), st.booleans()), read


def _checkpoint_case(folder: Path) -> Case:
    run = RunFolder.open(folder / "run")
    config = run.config()
    last = run.last_checkpoint()
    assert last is not None
    tensors, meta = checkpoint.load(last)
    metrics = (run.path / "metrics.jsonl").read_bytes()

    def read(case: tuple[dict[str, torch.Tensor], Any]) -> None:
        shutil.rmtree(run.path / "checkpoint")
        (run.path / "metrics.jsonl").write_bytes(metrics)
        checkpoint.save(run.path / "checkpoint", 2, case[0], case[1])
        model = config.problem.start(config).model()
        if (loaded := run.load(lambda _: None)) is not None:
            restore(loaded, model, optimizers.build(config, model), run)

    return st.tuples(altered_tensors(tensors), altered_json(meta)), read


def _config_case(folder: Path) -> Case:
    path = folder / "configured"
    path.mkdir(exist_ok=True)
    config = json.loads((folder / "run" / "config.json").read_text())
    flat = st.dictionaries(st.sampled_from(sorted(config)), VALUES_OF_JSON, min_size=1, max_size=3)
    texts = st.one_of(
        altered_json(config).map(json.dumps).map(str.encode),
        flat.map(lambda changes: json.dumps({**config, **changes}).encode()),
        altered_bytes(json.dumps(config).encode()),
    )

    def read(content: bytes) -> None:
        (path / "config.json").write_bytes(content)
        RunFolder.open(path).config()

    return texts, read


def _metrics_case(folder: Path) -> Case:
    path = folder / "measured"
    path.mkdir(exist_ok=True)

    def read(content: bytes) -> None:
        (path / "metrics.jsonl").write_bytes(content)
        RunFolder(path).metrics()

    return altered_bytes((folder / "run" / "metrics.jsonl").read_bytes()), read


def _set_case(folder: Path) -> Case:
    words = st.one_of(
        *(st.sampled_from(["1e400", "nan", "-1", "none", "0.9,0.99", "(1,2)", "full,full", ",", "true", "9" * 5000]),),
        st.text(max_size=10),
        st.integers().map(str),
        st.floats().map(str),
    )
    names = st.one_of(st.sampled_from(sorted({n for task in TASKS for n in all_settings(task)})), st.text(max_size=6))
    pairs = st.one_of(st.tuples(names, words).map("=".join), st.text(max_size=8))
    cases = st.tuples(st.sampled_from([*TASKS, "", "cop"]), st.lists(pairs, min_size=1, max_size=4))

    def read(case: tuple[str, list[str]]) -> None:
        resolve({"task": case[0], **from_text(*case)})

    return cases, read


def _sizes_case(folder: Path) -> Case:
    characters = st.text(alphabet="0123456789.,-²٣ ", max_size=12)
    return st.one_of(characters, st.sampled_from(["1..10" + "0" * 20, "1.." + "9" * 5000, "9" * 9])), cli._sizes


def _option_case(folder: Path) -> Case:
    return st.one_of(st.text(alphabet="ab=-²٣1", max_size=8), st.text(max_size=8)), cli._option


def _pretrained_case(folder: Path) -> Case:
    saved = {}
    for family in urnn.PARAMETRIZATIONS:
        config = json.loads((folder / family / CONFIG).read_text())
        saved[family] = config, _storage.unpack(folder / family / VALUES).tensors
    path = folder / "pretrained"
    path.mkdir(exist_ok=True)
    options = st.fixed_dictionaries(
        {"family": st.sampled_from(sorted(saved))},
        optional=dict.fromkeys(("layers", "reflections", "n"), SIZES),
    )
    sizes = st.dictionaries(st.sampled_from(["hidden_size", "input_size", "num_layers", "dropout"]), SIZES, max_size=2)

    def cases_of(family: str) -> st.SearchStrategy[Any]:
        described, tensors = saved[family][0]["model"], saved[family][1]

        def resized(changes: tuple[Any, ...]) -> Any:
            rnn = {
                **described["modules"]["rnn"],
                **changes[0],
                **({"parametrization": changes[1]} if changes[1] else {}),
            }
            return {**described, "modules": {**described["modules"], "rnn": rnn}}

        altered = altered_json(described) | st.tuples(sizes, st.none() | options).map(resized)
        return st.tuples(altered, altered_tensors(tensors))

    cases = st.sampled_from(sorted(saved)).flatmap(cases_of)

    def read(case: tuple[Any, dict[str, torch.Tensor]]) -> None:
        content, checksum = _storage.pack(case[1], None)
        (path / VALUES).write_bytes(content)
        config = {"format": "urnn", "version": 1, "sha256": checksum, "model": case[0]}
        (path / CONFIG).write_text(json.dumps(config))
        urnn.check_unitary(urnn.from_pretrained(path))

    return cases, read


READERS: dict[str, Callable[[Path], Case]] = {
    "files of tensors": _storage_case,
    "checkpoints": _checkpoint_case,
    "config.json": _config_case,
    "metrics.jsonl": _metrics_case,
    "--set": _set_case,
    "--n": _sizes_case,
    "--option": _option_case,
    "from_pretrained": _pretrained_case,
}


def fuzz(reader: str, folder: Path, cases: int) -> Counter[str]:
    """Try so many cases; returns how many were read and how many refused."""
    strategy, read = READERS[reader](folder)
    outcomes: Counter[str] = Counter()
    relaxed = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

    @settings(
        max_examples=cases,
        deadline=timedelta(seconds=20),
        database=None,
        derandomize=True,
        suppress_health_check=relaxed,
    )
    @given(strategy)
    def attempt(case: Any) -> None:
        refusal = None
        try:
            read(case)
        except (ValueError, TypeError) as error:
            refusal = str(error)
        assert refusal is None or "expected" in refusal, f"{refusal!r} does not say what was expected"
        outcomes["read" if refusal is None else "refused"] += 1

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
    try:
        attempt()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return outcomes


@pytest.mark.filterwarnings(
    "ignore:dropout. works between layers:UserWarning", "ignore:checkpoint. returned:UserWarning"
)
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is read from /proc")
@pytest.mark.parametrize("reader", READERS)
def test_nonsense_is_refused_in_words(reader, folder):
    outcomes = fuzz(reader, folder, FEW)
    assert sum(outcomes.values()) >= FEW / 2
    assert outcomes["refused"], "no case was wrong: the strategy tries nothing"


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore:dropout. works between layers:UserWarning", "ignore:checkpoint. returned:UserWarning"
)
@pytest.mark.parametrize("reader", READERS)
def test_much_nonsense_is_refused_in_words(reader, folder):
    share = -(-ALL // len(READERS))
    outcomes = fuzz(reader, folder, share)
    sys.stdout.write(
        f"\nCOUNT fuzz, {reader}: {sum(outcomes.values())} cases, {outcomes['refused']} refused, 0 failures\n"
    )
    assert sum(outcomes.values()) >= share

"""Models as folders: what was saved comes back, and nothing else does."""

import functools
import json
import math

import pytest
import torch
from torch import nn

import urnn
from urnn import _storage
from urnn.pretrained import CLASSES, CONFIG, VALUES

FAMILIES = urnn.parametrizations
MODELS = {
    "rnn": lambda: urnn.UnitaryRNN(3, 4),
    "rnn, all options": lambda: urnn.UnitaryRNN(
        *(3, 4, 2, False, True, 0.25, True),
        nonlinearity="hard",
        initial_state="zero",
        backend="explicit",
        return_sequence=False,
        checkpoint="sqrt",
        dtype=torch.float64,
    ),
    "nonpositive": lambda: urnn.UnitaryRNN(3, 4, bias_constraint="nonpositive"),
    **{f: functools.partial(urnn.UnitaryRNN, 3, 4, 2, parametrization=f) for f in urnn.PARAMETRIZATIONS},
    "class": lambda: urnn.UnitaryRNN(3, 4, parametrization=FAMILIES.Full),
    "partial": lambda: urnn.UnitaryRNN(
        3, 4, parametrization=functools.partial(FAMILIES.Householder, reflections=2, phase="pi")
    ),
    "givens, fft": lambda: urnn.UnitaryRNN(
        3, 8, parametrization=functools.partial(FAMILIES.Givens, layers=2, layout="fft")
    ),
    "cell": lambda: urnn.UnitaryRNNCell(3, 4, parametrization="householder"),
    "to real": lambda: urnn.ComplexToReal(4, 2, bias=False),
    "linear": lambda: urnn.ComplexLinear(4, 2, dtype=torch.float64),
    "modrelu": lambda: urnn.ModReLU(4, nonlinearity="modrelu_epsilon"),
    "parts": lambda: nn.ModuleDict({"rnn": urnn.UnitaryRNN(3, 4), "head": urnn.ComplexToReal(4, 2)}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_to_the_last_bit(tmp_path, name):
    model = MODELS[name]()
    urnn.save_pretrained(model, tmp_path / "deep" / "folder")
    random = torch.get_rng_state()
    again = urnn.from_pretrained(tmp_path / "deep" / "folder")
    assert torch.equal(torch.get_rng_state(), random)
    assert type(again) is type(model)
    expected, found = model.state_dict(), again.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[key], expected[key]) and found[key].dtype == expected[key].dtype for key in expected)
    if isinstance(model, urnn.UnitaryRNN):
        x = torch.randn(2, 5, 3, dtype=model.weight_ih_l0.real.dtype)
        model.eval(), again.eval()
        assert torch.equal(model(x)[1], again(x)[1])
        for option in ("batch_first", "dropout", "bidirectional", "nonlinearity", "backend", "checkpoint"):
            assert getattr(again, option) == getattr(model, option)


def test_every_class_of_the_table_is_tried():
    made = [make() for make in MODELS.values()]
    assert set(CLASSES.values()) <= {type(model) for model in made}


def test_a_loaded_model_trains_along_u_n(tmp_path):
    urnn.save_pretrained(urnn.UnitaryRNN(3, 4), tmp_path)
    model = urnn.from_pretrained(tmp_path)
    model.half_gradient = True
    optimizer = urnn.optim.Adam(model.parameters(), lr=0.1)
    model(torch.randn(5, 2, 3))[0].real.sum().backward()
    optimizer.step()
    assert urnn.check_unitary(model) < 1e-5
    urnn.save_pretrained(model, tmp_path)  # over the one that is there
    assert urnn.from_pretrained(tmp_path).half_gradient


class Own(FAMILIES.Full):
    pass


class OwnMap(FAMILIES.Exponential):
    pass


class OwnRNN(urnn.UnitaryRNN):
    pass


def changed(model, change):
    with torch.no_grad():
        change(model)
    return model


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.Linear(2, 2), TypeError, r"^model: expected one of \['ComplexLinear', .*got Linear\. For other"),
        (lambda: OwnRNN(2, 2), TypeError, "got OwnRNN"),
        (lambda: nn.ModuleDict({"a": nn.Linear(2, 2)}), TypeError, "^a: expected one of"),
        (lambda: urnn.UnitaryRNN(2, 2, parametrization=Own), TypeError, "^parametrization: expected a family .*Own"),
        (lambda: urnn.UnitaryRNN(2, 2, parametrization=OwnMap), TypeError, "^parametrization: .* of your own cannot"),
        (
            lambda: urnn.UnitaryRNN(2, 2, parametrization=lambda n, b, **k: FAMILIES.Full(n, b, **k)),
            TypeError,
            "^parametrization: expected a family",
        ),
        (
            lambda: changed(urnn.UnitaryRNN(2, 2), lambda m: m.weight_hh_l0.mul_(2)),
            ValueError,
            "^weight_hh_l0: expected a unitary matrix",
        ),
        (
            lambda: changed(urnn.ComplexToReal(2, 2), lambda m: m.bias.fill_(math.nan)),
            ValueError,
            "^bias: expected finite entries",
        ),
        (
            lambda: nn.utils.prune.identity(urnn.ComplexToReal(2, 2), "bias"),
            ValueError,
            r"missing are \['bias'\], and there are \['bias_mask', 'bias_orig'\] more",
        ),
    ],
    ids=range(9),
)
def test_what_would_not_come_back_is_not_saved(tmp_path, make, error, message):
    import torch.nn.utils.prune  # noqa: F401

    with pytest.raises(error, match=message):
        urnn.save_pretrained(make(), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_families_that_differ_between_layers_are_named(tmp_path):
    counts = iter((1, 2, 2))
    model = urnn.UnitaryRNN(
        2, 3, 2, parametrization=lambda n, b, **k: FAMILIES.Householder(n, b, reflections=next(counts), **k)
    )
    with pytest.raises(ValueError, match="^parametrization: expected one family with one set of options in all layers"):
        urnn.save_pretrained(model, tmp_path)


def altered(folder, change):
    """Change the description of the model in ``config.json``."""
    config = json.loads((folder / CONFIG).read_text())
    change(config["model"])
    (folder / CONFIG).write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": "Sequential"}, "class: expected one of"),
        ({"class": None}, "class: expected one of"),
        ({"hidden_size": 10**9}, r"hidden_size: expected no more than \d+, as model.safetensors has \d+ bytes"),
        ({"input_size": 10**30}, "input_size: expected no more than"),
        ({"num_layers": 10**9}, "num_layers: expected no more than 1000"),
        ({"hidden_size": "4"}, "hidden_size: expected an int, got str"),
        ({"hidden_size": True}, "hidden_size: expected an int, got bool"),
        ({"hidden_size": 5}, r"model.safetensors: .* weight_ih_l0: expected shape \(5, 3\) and torch.complex64"),
        ({"dtype": "float64"}, "expected shape .* and torch.complex128, got"),
        ({"dtype": "float16"}, "dtype: expected one of"),
        ({"device": "cuda"}, "device: expected an argument of UnitaryRNN"),
        ({"parametrization": "own"}, "parametrization: expected one of"),
        ({"parametrization": {"family": "os.system"}}, "family: expected one of"),
        ({"parametrization": {"family": "householder", "n": 3}}, "n: expected an option of Householder"),
        ({"parametrization": {"family": "householder", "reflections": 10**9}}, "parametrization: expected no more"),
        ({"parametrization": {"family": "givens", "layers": 10**9}}, "parametrization: expected no more than"),
        ({"parametrization": ["full"]}, "parametrization: expected one of"),
        ({"bias": False}, "there are \\['bias_l0'\\] more"),
        ({"half_gradient": 1}, "half_gradient: expected true or false"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_named(tmp_path, changes, message):
    urnn.save_pretrained(urnn.UnitaryRNN(3, 4), tmp_path)
    altered(tmp_path, lambda described: described.update(changes))
    with pytest.raises(ValueError, match=message):
        urnn.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected the configuration of a model"),
        ("[]", "expected a file of urnn.save_pretrained"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": "urnn", "model": 3}', "expected a file of urnn.save_pretrained"),
        ('{"format": "urnn", "model": {}, "version": 2}', "version: expected 1, got 2. A newer urnn may read it"),
        ('{"format": "urnn", "model": {}, "version": 1}', "sha256: expected the checksum"),
        (" " * (2**20 + 1), "a file of 1048577 bytes"),
    ],
    ids=range(7),
)
def test_a_file_that_is_no_configuration_is_named(tmp_path, content, message):
    urnn.save_pretrained(urnn.UnitaryRNN(3, 4), tmp_path)
    (tmp_path / CONFIG).write_text(content)
    with pytest.raises(ValueError, match=rf"config.json: .*{message}"):
        urnn.from_pretrained(tmp_path)


def test_values_of_another_model_are_refused(tmp_path):
    """As an interrupted save leaves them."""
    for name in ("a", "b"):
        urnn.save_pretrained(urnn.UnitaryRNN(3, 4), tmp_path / name)
    (tmp_path / "a" / VALUES).write_bytes((tmp_path / "b" / VALUES).read_bytes())
    with pytest.raises(ValueError, match="model.safetensors: .* a file that config.json does not belong to"):
        urnn.from_pretrained(tmp_path / "a")


@pytest.mark.parametrize("factor", [2, math.nan])
@pytest.mark.parametrize("family", ["full", "exponential"])
def test_a_matrix_that_is_not_unitary_is_refused_though_its_checksum_is_right(tmp_path, family, factor):
    model = urnn.UnitaryRNN(3, 4, parametrization=family)
    urnn.save_pretrained(model, tmp_path)
    name = "weight_hh_l0" if family == "full" else "parametrization_hh_l0.base"
    tensors = model.state_dict()
    content, checksum = _storage.pack({**tensors, name: factor * tensors[name]}, None)
    (tmp_path / VALUES).write_bytes(content)
    config = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps({**config, "sha256": checksum}))
    with pytest.raises(ValueError, match=rf"model.safetensors: .*{name}: expected (a unitary matrix|finite entries)"):
        urnn.from_pretrained(tmp_path)


def test_a_file_larger_than_the_model_is_not_read(tmp_path):
    urnn.save_pretrained(urnn.UnitaryRNN(3, 4), tmp_path)
    with (tmp_path / VALUES).open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"a file of 1099511627776 bytes, more than the \d+ that there can be"):
        urnn.from_pretrained(tmp_path)


def test_missing_files_and_places_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        urnn.from_pretrained(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file: expected to write a model here"):
        urnn.save_pretrained(urnn.ModReLU(3), tmp_path / "file")

"""``urnn doctor`` sees what is right and what is not."""

import torch
from typer.testing import CliRunner

import urnn
from urnn import doctor
from urnn.cli import app
from urnn.ops import BACKENDS
from urnn.ops.cpu import kernels


def rows():
    return {(row.section, row.name): row for row in doctor.examine()}


def test_a_sound_installation_passes():
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "no self-test failed" in result.output
    for word in (
        urnn.__version__,
        torch.__version__,
        "cpu on cpu: can serve, and auto takes it",
        "ok  explicit on cpu",
    ):
        assert word in result.output


def test_every_backend_has_its_row_and_those_that_serve_are_tested():
    found = rows()
    for name, backend in BACKENDS.items():
        row = found["backends", f"{name} on cpu"]
        reason = backend.why_not(doctor.Problem(torch.device("cpu"), torch.complex64, 128, "modrelu"))
        assert row.text.startswith(reason or "can serve")
        assert (("self-test", f"{name} on cpu") in found) == (reason is None)
    assert all(row.ok for key, row in found.items() if key[0] == "self-test")


def test_random_numbers_are_left_alone():
    state = torch.get_rng_state()
    rows()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_backend_that_computes_something_else_is_found(monkeypatch):
    from urnn.ops import explicit

    backward = explicit.backward
    monkeypatch.setattr(
        explicit, "backward", lambda *a, **k: tuple(None if g is None else 1.01 * g for g in backward(*a, **k))
    )
    row = rows()["self-test", "explicit on cpu"]
    assert row.ok is False
    assert "expected an error of at most 1e-04 in single precision, got 1.0e-02" in row.text
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1


def test_a_step_that_leaves_u_n_is_found(monkeypatch):
    monkeypatch.setattr(doctor, "Adam", lambda p, lr: torch.optim.SGD(p, lr=lr))
    row = rows()["self-test", "training on cpu"]
    assert row.ok is False
    assert "weight_hh_l0: expected a unitary matrix" in row.text


def test_a_step_that_does_nothing_is_found(monkeypatch):
    monkeypatch.setattr(doctor, "Adam", lambda p, lr: torch.optim.SGD(p, lr=0.0))
    assert "weight_hh_l0: expected another matrix" in rows()["self-test", "training on cpu"].text


def test_a_folder_of_compiled_code_that_is_not_there_is_found(monkeypatch, tmp_path):
    class Stats:
        cache_path = str(tmp_path / "nowhere")

    class Forward:
        stats = Stats

    monkeypatch.setattr(kernels, "forward", Forward)
    assert rows()["self-test", "compiled code on disk"].ok is False

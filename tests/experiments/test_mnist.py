"""Pixel-by-pixel MNIST: what is shown when, what is learned from, and what the figures are of."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import urnn
from urnn.experiments import models, optimizers
from urnn.experiments.data import mnist
from urnn.experiments.folder import RunFolder
from urnn.experiments.grid import Cell, gather
from urnn.experiments.presets import configure
from urnn.experiments.tasks import Mnist
from urnn.experiments.tasks.mnist import MnistProblem
from urnn.experiments.train import prepare, train, training_step

T = 12
EVERY = ("log_every", "eval_every", "checkpoint_every")


def start(config) -> MnistProblem:
    problem = config.problem.start(config)
    assert isinstance(problem, MnistProblem)
    return problem


def test_the_permutation_is_that_of_the_literature():
    order = Mnist(order="permuted").pixel_order(784).numpy()
    assert (order == np.random.RandomState(92916).permutation(784)).all()
    assert order[:5].tolist() == [319, 576, 323, 107, 355]
    other = Mnist(order="permuted", permutation_seed=1).pixel_order(784).numpy()
    assert (other == np.random.RandomState(1).permutation(784)).all()


@pytest.mark.parametrize("size", [1, 2, 3, 12, 64, 784])
@pytest.mark.parametrize("order", ["rows", "permuted", "bits"])
def test_every_order_shows_every_pixel_once(order, size):
    assert sorted(Mnist(order=order).pixel_order(size).tolist()) == list(range(size))


def test_bit_reversal_is_its_own_inverse_where_there_is_a_power_of_two():
    order = Mnist(order="bits").pixel_order(64)
    assert torch.equal(order[order], torch.arange(64))
    assert order[:4].tolist() == [0, 32, 16, 48]


@pytest.mark.parametrize("order", ["rows", "permuted", "bits"])
def test_a_batch_is_the_pixels_of_its_images_one_at_a_time(tiny, toy_mnist, order):
    """From the files to (T, B, 1), by another way."""
    problem = start(tiny("mnist", order=order, dtype="float64"))
    train_set, test_set = mnist.load(toy_mnist, checksums=False)
    (rows,) = problem.batch(3)
    x = problem._sequences(problem.images["train"][rows])
    assert x.shape == (T, 5, 1)
    assert x.dtype == torch.float64
    pixels = Mnist(order=order).pixel_order(T)
    for t in range(T):
        for place, row in enumerate(rows.tolist()):
            image = train_set.images[10 + row]  # the first ten are for validation
            assert x[t, place, 0] == image[pixels[t] // 3, pixels[t] % 3].double() / 255
    assert torch.equal(problem.images["validation"], train_set.images[:10].flatten(1)[:, pixels])
    assert torch.equal(problem.images["test"], test_set.images[:12].flatten(1)[:, pixels])
    assert torch.equal(problem.labels["train"], train_set.labels[10:50].long())
    assert all(images.dtype == torch.uint8 for images in problem.images.values())


def test_an_epoch_takes_every_image_once(tiny):
    problem = start(tiny("mnist"))
    rows = torch.cat([problem.batch(i)[0] for i in range(8)])
    assert sorted(rows.tolist()) == list(range(40))


@pytest.mark.parametrize("model", ["full", "restricted", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("readout", "read"),
    [
        ("last", lambda h: h[-1]),
        ("mean", lambda h: (h[-3] + h[-2] + h[-1]) / 3),
        ("times", lambda h: torch.cat([h[3], h[7], h[11]], -1)),
    ],
)
def test_readouts_are_what_they_say(tiny, model, layers, dtype, readout, read):
    problem = start(tiny("mnist", model=model, num_layers=layers, readout=readout, readout_states=3, dtype=dtype))
    network = problem.model()
    x = problem._sequences(problem.images["test"])
    logits = network(x)
    assert logits.shape == (12, 10)
    if model != "lstm":
        network.rnn.return_sequence = True
    states, _ = network.rnn(x)
    assert torch.allclose(logits, network.readout(read(states)), atol=1e-6)


def test_states_are_read_at_equal_distances_and_the_last_is_among_them():
    assert Mnist(readout="times", readout_states=4).read_times(784) == [195, 391, 587, 783]
    assert Mnist(readout="mean", readout_states=2).read_times(784) == [782, 783]
    assert Mnist(readout="times", readout_states=12).read_times(12) == list(range(12))


def test_dropout_and_label_smoothing_are_for_training_alone(tiny):
    problem = start(tiny("mnist", dropout=0.5, label_smoothing=0.3))
    model = problem.model()
    batch = problem.batch(0)
    with torch.no_grad():
        assert float(problem.loss(model, *batch)) != float(problem.loss(model, *batch))
        model.eval()
        first, _, _ = problem._measured(model, "validation")
        assert first == problem._measured(model, "validation")[0]
        x, labels = problem._sequences(problem.images["validation"]), problem.labels["validation"]
        assert first == pytest.approx(float(nn.functional.cross_entropy(model(x), labels)))


def test_dropout_takes_whole_entries_and_keeps_their_mean(tiny):
    problem = start(tiny("mnist", dropout=0.25, hidden=400))
    model = problem.model()
    seen = []
    model.readout.register_forward_pre_hook(lambda _, words: seen.append(words[0].detach()))
    x = problem._sequences(problem.images["test"])
    model(x)
    model.eval()
    model(x)
    dropped, whole = seen
    gone = dropped == 0
    assert float(gone.float().mean()) == pytest.approx(0.25, abs=0.03)
    assert torch.allclose(dropped[~gone], whole[~gone] / 0.75)


def test_forget_gates_start_where_they_are_told(tiny):
    torch.manual_seed(0)
    plain = start(tiny("mnist", model="lstm", forget_bias=0.0, num_layers=2)).model().rnn
    torch.manual_seed(0)
    opened = start(tiny("mnist", model="lstm", forget_bias=1.5, num_layers=2)).model().rnn
    for layer in range(2):
        moved = opened.get_parameter(f"bias_ih_l{layer}") - plain.get_parameter(f"bias_ih_l{layer}")
        assert torch.allclose(moved, torch.tensor([0.0, 1.5, 0.0, 0.0]).repeat_interleave(6))


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("mnist/full-116", 16366),
        ("mnist-permuted/full-512", 274954),
        ("mnist-permuted/restricted-512", 16394),
        ("mnist/lstm-128", 68362),  # 8 N biases; the paper says about 68k
        ("mnist/lstm-256", 267786),
        ("mnist-subset/full-128", 19594),
    ],
)
@pytest.mark.parametrize("recipe", ["best", "paper"])
def test_parameters_are_as_many_as_the_papers(preset, parameters, recipe, toy_mnist):
    config = prepare(configure(recipe, preset, own={"data": str(toy_mnist), "checksums": False} | SMALL))
    assert models.count_parameters(start(config).model()) == parameters


SMALL = {"train_images": 40, "validation_images": 10, "test_images": 12}


@pytest.mark.parametrize(
    ("preset", "lr", "clip_norm"),
    [
        ("full-512", 1e-4, 0.0),
        ("restricted-512", 1e-4, 0.0),
        ("full-116", 1e-3, 0.0),
        ("lstm-128", 1e-3, 1.0),
        ("lstm-256", 1e-3, 1.0),
    ],
)
@pytest.mark.parametrize("order", ["mnist", "mnist-permuted"])
def test_the_papers_recipe(order, preset, lr, clip_norm):
    config = prepare(configure("paper", f"{order}/{preset}"))
    assert (config.lr, config.clip_norm, config.batch_size, config.patience) == (lr, clip_norm, 50, 5)
    assert (config.max_iterations, config.eval_every) == (200 * 1100, 1100)
    assert (config.schedule, config.optimizer, config.problem.label_smoothing) == ("constant", "rmsprop", 0.0)
    if "full" in preset:
        assert (config.unitary_lr, config.unitary_scaling, config.alpha, config.eps) == (1e-6, "elementwise", 0.9, 1e-8)
    assert (config.problem.train_images, config.problem.validation_images) == (55_000, 5000)


@pytest.mark.parametrize("recipe", ["best", "paper"])
def test_b_starts_at_nought(tiny, recipe):
    model = start(tiny("mnist", recipe=recipe)).model()
    assert (model.rnn.bias_l0 == 0).all()


def test_the_papers_optimizer_is_the_librarys(tiny):
    config = tiny("mnist", recipe="paper")
    model = start(config).model()
    ours = optimizers.build(config, model).param_groups[0]
    theirs = urnn.optim.RMSprop.paper(model.parameters(), "mnist", lr=1e-4).param_groups[0]
    assert {k: v for k, v in ours.items() if k != "params"} == {k: v for k, v in theirs.items() if k != "params"}


@pytest.mark.parametrize(
    ("own", "iterations", "epoch", "log_every"),
    [
        ({}, 150 * 8, 8, 2),
        ({"batch_size": 40}, 150, 1, 1),
        ({"batch_size": 100}, 150, 1, 1),
        (
            {"train_images": 37, "batch_size": 1, "log_every": 20, "eval_every": 20, "checkpoint_every": 20},
            150 * 37,
            37,
            37,
        ),
    ],
)
def test_epochs_become_iterations(tiny, own, iterations, epoch, log_every):
    config = tiny("mnist", epochs=150, **own)
    assert (config.max_iterations, config.eval_every, config.checkpoint_every) == (iterations, epoch, epoch)
    assert config.log_every == log_every
    assert prepare(config) == config


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"order": "columns"}, "order: expected one of"),
        ({"readout": "first"}, "readout: expected one of"),
        ({"permutation_seed": 2**32}, "permutation_seed: expected an int in .0, 4294967295., got 4294967296"),
        ({"train_images": 0}, "train_images: expected an int >= 1, got 0"),
        ({"dropout": 1.0}, "dropout: expected a number in .0.0, 1.0., got 1.0"),
        ({"label_smoothing": -0.1}, "label_smoothing: expected a number in"),
        ({"epochs": -1}, "epochs: expected an int >= 0, got -1"),
        ({"data": "/nowhere"}, "data: expected a folder with MNIST's four files, got '/nowhere', which is none"),
        ({"readout": "times", "parameters": 500}, "parameters: expected 0 with readout='times'"),
    ],
)
def test_bad_settings_are_named_before_a_run_begins(tiny, own, message):
    with pytest.raises(ValueError, match=message):
        tiny("mnist", **own)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"train_images": 51}, "train_images: expected at most 50, as 10 of the 60 images are for validation, got 51"),
        ({"test_images": 21}, "test_images: expected at most 20, got 21"),
        ({"readout": "mean", "readout_states": 13}, "readout_states: expected an int in .1, 12., got 13"),
    ],
)
def test_settings_that_do_not_suit_the_files_are_named(tiny, own, message):
    with pytest.raises(ValueError, match=message):
        start(tiny("mnist", **own)).model()


def test_parameters_choose_the_size(tiny):
    config = tiny("mnist", parameters=1000, model="lstm")
    found = models.count_parameters(start(config).model())
    assert abs(found - 1000) < 60


def test_patterns_are_learned_and_the_figures_are_those_of_the_best_weights(run):
    folder, result = run("mnist", epochs=40, hidden=16, lr=1e-2)
    assert result["test_accuracy"] > 0.8
    assert result["iterations"] == 40 * 8
    assert result["iterations_per_epoch"] == 8
    confusion = torch.tensor(result["confusion"])
    assert confusion.sum(1).tolist() == [2, 2] + [1] * 8  # the first twelve of the test set
    assert float(confusion.trace()) / 12 == pytest.approx(result["test_accuracy"])
    learning = result["learning"]
    assert learning["iteration"] == list(range(8, 321, 8))
    best = learning["iteration"].index(result["best_at"])
    assert min(learning["loss"]) == learning["loss"][best] == pytest.approx(result["validation_loss"])
    assert learning["accuracy"][best] == result["validation_accuracy"]
    assert result["recurrence_parameters"] == 256
    assert result["unitarity_defect"] < 2e-6
    assert json.dumps(result)


def test_the_test_set_is_looked_at_once_and_after_all_training(tiny, tmp_path, quiet, monkeypatch):
    looked = []
    measured = MnistProblem._measured

    def watched(self, model, name):
        looked.append(name)
        return measured(self, model, name)

    monkeypatch.setattr(MnistProblem, "_measured", watched)
    train(RunFolder.create(tmp_path / "run", tiny("mnist")), quiet)
    assert looked == ["validation"] * 4 + ["test"]


def test_patience_stops_a_run(run):
    _, result = run("mnist", epochs=50, lr=0.0, unitary_lr=0.0, patience=3)
    assert result["stopped"] == "patience"
    assert result["iterations"] == 4 * 8


def test_data_may_move_and_are_no_part_of_the_results(run, tiny, toy_mnist, tmp_path, quiet):
    folder, result = run("mnist")
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in toy_mnist.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    config = tiny("mnist", data=str(moved))
    again = RunFolder.create(folder.path, config)
    assert again.result() == result
    assert again.config().problem.data == str(moved)
    (row,) = gather([Cell("mnist/full-116", config, folder.path)])
    assert "data" not in row["config"]
    assert str(tmp_path) not in json.dumps(row)
    with pytest.raises(ValueError, match="holds another run .order is 'rows' there and 'bits' here"):
        RunFolder.create(folder.path, tiny("mnist", data=str(moved), order="bits"))


def test_a_run_finds_its_data_from_wherever_it_is_resumed(tiny, toy_mnist, monkeypatch, tmp_path):
    monkeypatch.chdir(toy_mnist.parent)
    config = tiny("mnist", data=toy_mnist.name)
    monkeypatch.chdir(tmp_path)
    assert len(start(config).images["train"]) == 40


def test_a_run_without_a_folder_downloads(tiny, toy_mnist, monkeypatch):
    config = tiny("mnist", data=None)
    monkeypatch.setattr(mnist, "download", lambda: Path(toy_mnist))
    assert len(start(config).images["train"]) == 40


@pytest.mark.parametrize("readout", ["last", "mean", "times"])
def test_the_loss_never_reads_what_is_on_the_device(tiny, readout):
    """As a graph needs it. These tensors have no values: reading one is an error."""
    problem = start(tiny("mnist", backend="reference", dropout=0.1, readout=readout, readout_states=2))
    model, (rows,) = problem.model(), problem.batch(0)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    problem.images["train"] = mode.from_tensor(problem.images["train"])
    problem.labels["train"] = mode.from_tensor(problem.labels["train"])
    with mode:
        loss = problem.loss(model, mode.from_tensor(rows))
        loss.backward()
        with pytest.raises(DataDependentOutputException):
            loss.item()


def test_one_kind_of_batch_is_one_graph(tiny):
    config = tiny("mnist", train_images=37)
    problem = start(config)
    assert problem.kinds == 1
    assert {tuple(problem.batch(i)[0].shape) for i in range(20)} == {(5,)}
    model = problem.model()
    step = training_step(config, problem, model, optimizers.build(config, model))
    assert torch.isfinite(step(*problem.batch(0)))

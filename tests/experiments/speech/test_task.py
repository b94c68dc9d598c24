"""The task: what is predicted, what is counted, and what is not."""

import json
from pathlib import Path

import pytest
import torch

from urnn.experiments import models
from urnn.experiments.presets import PRESETS, configure
from urnn.experiments.speech import baselines, features
from urnn.experiments.speech.baselines import LinearPrediction, previous_frame
from urnn.experiments.speech.stft import Frames
from urnn.experiments.tasks.speech import predict


@pytest.fixture
def problem(tiny):
    def of(**own):
        config = tiny("speech", **own)
        return config.problem.start(config)

    return of


@pytest.mark.parametrize("model", ["full", "restricted", "lstm", "rnn"])
@pytest.mark.parametrize("add", ["none", "previous"])
def test_padding_enters_neither_loss_nor_gradients(problem, model, add):
    of = problem(model=model, add=add, batch_size=4, dtype="float64")
    net = of.model()
    x, y, lengths = of.batch(0)
    assert len(set(lengths.tolist())) > 1
    gradients = []
    for padding in (0.0, 100.0):
        for row, length in enumerate(lengths):
            x[length:, row], y[length:, row] = padding, -padding
        net.zero_grad()
        of.loss(net, x, y, lengths).backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_the_loss_is_the_mean_over_what_exists(problem):
    of = problem(batch_size=4, dtype="float64")
    net = of.model()
    places = of.splits["train"][:4]
    errors = []
    for place in places:  # each utterance on its own, without any padding
        values = of.features[int(place)].double().unsqueeze(1)
        errors.append((predict(net, values[:-1], of.task) - values[1:]).square().flatten())
    loss = of.loss(net, *of.padded(places))
    assert loss.item() == pytest.approx(torch.cat(errors).mean().item(), rel=1e-12)


def test_validation_is_the_mean_over_what_exists_whatever_the_batches(problem):
    net = problem().model()
    found = {size: problem(batch_size=size).evaluate(net)["validation"][0] for size in (1, 2, 3)}
    assert len({round(value, 3) for value in found.values()}) == 1


def test_a_batch_holds_features_and_what_follows_them(problem):
    of = problem(batch_size=3)
    places = of.splits["train"][[2, 0, 1]]
    x, y, lengths = of.padded(places)
    for row, place in enumerate(places):
        values = of.features[int(place)]
        assert lengths[row] == len(values) - 1
        assert torch.equal(x[: lengths[row], row], values[:-1])
        assert torch.equal(y[: lengths[row], row], values[1:])
        assert not x[lengths[row] :, row].any()


def test_an_epoch_takes_every_utterance_once_and_like_lengths_together(problem):
    of, again = problem(batch_size=2), problem(batch_size=2)
    assert of.iterations_per_epoch == 6
    epoch = of._of_epoch(0)
    assert sorted(torch.cat(epoch).tolist()) == of.splits["train"].tolist()
    assert [b.tolist() for b in epoch] != [b.tolist() for b in of._of_epoch(1)]
    for iteration in (13, 0, 7):  # in any order
        assert all(torch.equal(a, b) for a, b in zip(of.batch(iteration), again.batch(iteration), strict=True))
    gaps = [abs(int(of.lengths[b[0]] - of.lengths[b[1]])) for b in epoch]
    all_lengths = of.lengths[of.splits["train"]].sort().values
    assert max(gaps) < (all_lengths[-1] - all_lengths[0]) / 2


def test_a_fraction_of_the_training_data(problem):
    whole, part = problem(), problem(fraction=0.25)
    assert len(part.splits["train"]) == 3
    assert set(part.splits["train"].tolist()) < set(whole.splits["train"].tolist())
    assert all(torch.equal(part.splits[s], whole.splits[s]) for s in ("valid", "eval"))
    assert torch.equal(problem(fraction=0.25).splits["train"], part.splits["train"])


def test_the_model_carries_the_statistics_of_the_training_data(problem):
    of = problem()
    train = torch.cat([of.features[int(p)] for p in of.splits["train"]])
    net = of.model()
    assert torch.allclose(net.mean, train.mean(0), atol=1e-4)
    assert torch.allclose(net.deviation, train.std(0, correction=0), atol=1e-4)
    plain = problem(normalize=False).model()
    assert not plain.mean.any()
    assert (plain.deviation == 1).all()


def test_the_released_codes_figure_is_what_it_did(problem):
    """Pad the set to its longest utterance in amplitude, transform, shift by a frame, mask, divide by all."""
    of = problem(dtype="float64")
    net = of.model()
    figures = of.test(net, [])
    places = of.splits["eval"]
    longest = max(len(of.features[int(p)]) for p in places)
    total = 0.0
    for place in places:
        values = of.features[int(place)].double()
        padded = torch.cat([values, torch.full((longest - len(values) + 1, values.shape[1]), -50.0)])
        outputs = predict(net, padded[:-1].unsqueeze(1), of.task).squeeze(1)
        mask = torch.arange(longest) < len(values)
        total += float(((outputs.detach() - padded[1:]).square() * mask[:, None]).sum())
    expected = total / (longest * len(places) * values.shape[1])
    assert figures["eval_mse_released_code"] == pytest.approx(expected, rel=1e-9)
    assert figures["eval_mse_released_code"] != pytest.approx(figures["eval_mse"], rel=1e-3)


def test_figures_of_a_run_hang_together(run):
    folder, result = run("speech")
    made = features.read(Path(folder.config().problem.data))
    sizes = {made.ids[int(p)]: int(made.lengths[p]) - 1 for p in made.places("eval")}
    each = result["eval_mse_of_utterances"]
    assert each.keys() == sizes.keys()
    mean = sum(each[name] * n for name, n in sizes.items()) / sum(sizes.values())
    assert result["eval_mse"] == pytest.approx(mean, rel=1e-5)
    eval_set = [made[int(p)] for p in made.places("eval")]
    previous = torch.cat([(x[1:] - x[:-1]) for x in eval_set]).square().mean()
    assert result["baselines"]["previous frame"]["eval_mse"] == pytest.approx(float(previous), rel=1e-5)
    assert result["iterations_per_epoch"] == 4
    json.dumps(result)


def test_linear_prediction_finds_the_process_it_is_made_for():
    x = torch.zeros(3000, 2, dtype=torch.float64)
    for t in range(2, 3000):
        x[t] = 1.2 * x[t - 1] - 0.5 * x[t - 2] + torch.randn(2)
    x += torch.tensor([-30.0, 10.0])
    fitted = LinearPrediction.fitted([x[:1500], x[1500:]], order=4)
    assert torch.allclose(fitted.weights, torch.tensor([1.2, -0.5, 0, 0]).double().expand(2, 4), atol=0.08)
    assert (fitted(x) - x[1:]).square().mean() == pytest.approx(1, abs=0.1)
    assert fitted(x).shape == (2999, 2)


def test_linear_prediction_is_least_squares_and_beats_what_it_contains():
    utterances = [torch.randn(n, 3).cumsum(0) for n in (30, 2, 50)]
    fitted = LinearPrediction.fitted(utterances)
    errors = {
        name: sum((method(x) - x[1:]).double().square().sum() for x in utterances)
        for name, method in {"fitted": fitted, "previous": previous_frame}.items()
    }
    assert errors["fitted"] < errors["previous"]
    moved = LinearPrediction(fitted.mean, fitted.weights + 1e-2 * torch.randn_like(fitted.weights))
    assert sum((moved(x) - x[1:]).double().square().sum() for x in utterances) > errors["fitted"]


def test_linear_prediction_of_silence_is_silence():
    silence = torch.full((20, 2), -50.0)
    fitted = LinearPrediction.fitted([silence])
    assert torch.equal(fitted(silence), silence[1:])


@pytest.mark.parametrize("method", [previous_frame, "linear"])
def test_baselines_see_the_past_alone(method):
    x = torch.randn(40, 3)
    of = LinearPrediction.fitted([x]) if method == "linear" else method
    changed = x.clone()
    changed[20:] += 1
    assert torch.equal(of(changed)[:20], of(x)[:20])
    assert not torch.equal(of(changed)[20], of(x)[20])
    assert baselines.ORDER == 8


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("speech/full-128", 82945),
        ("speech/full-192", 136641),
        ("speech/full-256", 198529),
        ("speech/restricted-128", 67457),
        ("speech/lstm-84", 83205),
    ],
)
def test_sizes_are_those_of_table_2(preset, parameters):
    config = configure("paper", preset)
    assert models.count_parameters(models.build(config, *config.problem.widths())) == parameters


def test_size_classes_are_of_equal_size():
    """Where the paper compares at equal numbers of parameters."""
    for full, others in {128: ("restricted-158", "lstm-84"), 192: ("restricted-256", "lstm-120")}.items():
        counts = []
        for preset in (f"speech/full-{full}", *(f"speech/{name}" for name in others)):
            config = configure("best", preset)
            counts.append(models.count_parameters(models.build(config, *config.problem.widths())))
        assert max(counts) < 1.02 * min(counts)
    assert "speech/full-512" in PRESETS


def test_training_needs_features_and_no_audio_library(run, monkeypatch):
    monkeypatch.setattr("urnn.experiments.speech.audio.needed", lambda name: pytest.fail(f"imported {name}"))
    _, result = run("speech")
    assert result["iterations"] == 12


def test_training_on_a_folder_of_audio(corpus, run):
    _, result = run("speech", data=str(corpus), eval_every=4)
    assert result["eval_mse_of_utterances"].keys() == {"007", "009"}
    assert result["skipped"] == []


def test_bad_audio_is_listed_in_the_result(corpus, run):
    (corpus / "audio" / "001.wav").write_bytes(b"text")
    with pytest.raises(ValueError, match="001.wav"):
        run("speech", data=str(corpus))
    _, result = run("speech", "skipping", data=str(corpus), skip_bad=True)
    assert len(result["skipped"]) == 1
    assert "001.wav: expected FLAC, WAV or NIST SPHERE" in result["skipped"][0]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"data": ""}, "data: expected a folder of audio or a file of features, got none. Give it with --data"),
        ({"data": "nowhere"}, "data: expected a folder of audio or a file of features, got 'nowhere'"),
        ({"hop": 64}, "expected features made with"),
        ({"fraction": 1.5}, "fraction: expected a number in"),
        ({"add": "all"}, "add: expected one of"),
        ({"feature": "mel"}, "feature: expected one of"),
        ({"hop": 200}, "hop: expected an int in"),
    ],
)
def test_wrong_settings_are_named(problem, own, message):
    with pytest.raises(ValueError, match="expected") as found:
        problem(**own)
    assert message in str(found.value)


def test_frames_of_settings_are_those_of_the_file(speech_features):
    assert features.read(speech_features).frames == Frames()

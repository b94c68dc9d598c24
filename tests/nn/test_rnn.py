"""``UnitaryRNN``: used as ``nn.GRU``, equal to Eq. 1 and 2 written out by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

import urnn
from urnn import UnitaryRNN

FAMILIES = list(urnn.PARAMETRIZATIONS)
EXACT = {"rtol": 1e-12, "atol": 1e-12}
M, N = 3, 4
LENGTHS = (2, 5, 1, 4)

LAYOUTS = [
    {"num_layers": layers, "bidirectional": bidirectional, "batch_first": batch_first}
    for layers, bidirectional, batch_first in itertools.product((1, 3), (False, True), (False, True))
]


def name_of(value):
    return "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def inputs(*shape, complex_input=False):
    return torch.randn(*shape, dtype=torch.complex128 if complex_input else torch.float64)


def spread_biases(rnn):
    """Biases of both signs, and one so low that its entry is cut at zero."""
    for name, parameter in rnn.named_parameters():
        if "bias" in name:
            nn.init.uniform_(parameter, -0.6, 0.3)
            nn.init.constant_(parameter[:1], -20.0)
    return rnn


def layer(**options):
    return spread_biases(UnitaryRNN(M, N, dtype=torch.float64, **options))


def suffixes(rnn):
    directions = ("", "_reverse") if rnn.bidirectional else ("",)
    return [[f"_l{i}{direction}" for direction in directions] for i in range(rnn.num_layers)]


def by_hand(rnn, x, h_0=None):
    """Eq. 1 and 2 in numpy for one sequence: x (T, M) and h_0 (D L, N) give h (T, D N) and h_n (D L, N)."""
    x, last, place = x.detach().numpy(), [], 0
    for names in suffixes(rnn):
        sides = []
        for name in names:
            V, W = (getattr(rnn, f"{weight}{name}").detach().numpy() for weight in ("weight_ih", "weight_hh"))
            b = 0.0 if rnn._parameters[f"bias{name}"] is None else getattr(rnn, f"bias{name}").detach().numpy()
            learned = rnn._parameters[f"initial_state{name}"]
            h = np.zeros(W.shape[0], complex) if learned is None else learned.detach().numpy()
            h = h if h_0 is None else h_0[place].detach().numpy()
            states = np.zeros((len(x), W.shape[0]), complex)
            for t in reversed(range(len(x))) if name.endswith("_reverse") else range(len(x)):
                z = W @ h + V @ x[t]
                h = np.where(np.abs(z) + b > 0, (np.abs(z) + b) * z / np.abs(z), 0)
                states[t] = h
            sides.append(states)
            last.append(h)
            place += 1
        x = np.concatenate(sides, -1)
    return torch.from_numpy(x), torch.from_numpy(np.stack(last))


# As nn.GRU


@pytest.mark.parametrize("given_h_0", [False, True], ids=["default", "given"])
@pytest.mark.parametrize("form", ["batched", "unbatched", "packed", "packed_unsorted"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=name_of)
def test_shapes_are_those_of_gru(layout, form, given_h_0):
    gru, rnn = nn.GRU(M, N, **layout), UnitaryRNN(M, N, **layout)
    batch = () if form == "unbatched" else (len(LENGTHS),)
    if form.startswith("packed"):
        lengths = LENGTHS if form == "packed_unsorted" else sorted(LENGTHS, reverse=True)
        x = pack_sequence([torch.randn(n, M) for n in lengths], enforce_sorted=form == "packed")
    elif form == "unbatched":
        x = torch.randn(5, M)
    else:
        x = torch.randn(*((*batch, 5) if layout["batch_first"] else (5, *batch)), M)
    h_0 = torch.randn(layout["num_layers"] * (1 + layout["bidirectional"]), *batch, N)
    expected, expected_n = gru(x, h_0) if given_h_0 else gru(x)
    h, h_n = rnn(x, h_0.cfloat()) if given_h_0 else rnn(x)
    assert h_n.shape == expected_n.shape
    assert h_n.dtype == torch.complex64
    if isinstance(expected, PackedSequence):
        assert isinstance(h, PackedSequence)
        for field in ("batch_sizes", "sorted_indices", "unsorted_indices"):
            mine, theirs = getattr(h, field), getattr(expected, field)
            assert (mine is None and theirs is None) or torch.equal(mine, theirs)
        h, expected = h.data, expected.data
    assert h.shape == expected.shape
    assert h.dtype == torch.complex64


def test_constructor_takes_the_arguments_of_gru_by_position():
    rnn = UnitaryRNN(M, N, 2, False, True, 0.25, True)
    values = (rnn.num_layers, rnn.bias_is_learned, rnn.batch_first, rnn.dropout, rnn.bidirectional)
    assert values == (2, False, True, 0.25, True)


def test_parameters_are_named_as_those_of_gru():
    gru = {name for name, _ in nn.GRU(M, N, 2, bidirectional=True).named_parameters() if not name.startswith("bias")}
    ours = {name for name, _ in UnitaryRNN(M, N, 2, bidirectional=True).named_parameters()}
    directions = [f"_l{i}{r}" for i in (0, 1) for r in ("", "_reverse")]
    assert ours == gru | {f"{name}{d}" for name in ("bias", "initial_state") for d in directions}


def test_flatten_parameters_does_nothing():
    rnn = UnitaryRNN(M, N)
    before = {name: (p, p.detach().clone()) for name, p in rnn.named_parameters()}
    assert rnn.flatten_parameters() is None
    for name, p in rnn.named_parameters():
        assert p is before[name][0]
        assert torch.equal(p, before[name][1])


# The definition


@pytest.mark.parametrize("start", ["learned", "zero", "given"])
@pytest.mark.parametrize("complex_input", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=name_of)
def test_layer_is_eq_1_and_2(layout, complex_input, start):
    rnn = layer(**layout, initial_state="zero" if start == "zero" else "learned")
    places = layout["num_layers"] * (1 + layout["bidirectional"])
    x = inputs(6, 2, M, complex_input=complex_input)
    h_0 = inputs(places, 2, N, complex_input=True) if start == "given" else None
    h, h_n = rnn(x.transpose(0, 1) if layout["batch_first"] else x, h_0)
    h = h.transpose(0, 1) if layout["batch_first"] else h
    for row in range(2):
        expected, expected_n = by_hand(rnn, x[:, row], None if h_0 is None else h_0[:, row])
        torch.testing.assert_close(h[:, row], expected, **EXACT)
        torch.testing.assert_close(h_n[:, row], expected_n, **EXACT)
    assert bool((h == 0).any())  # the cut of Eq. 2 took part
    one, one_n = rnn(x[:, 0], None if h_0 is None else h_0[:, 0])
    torch.testing.assert_close(one, h[:, 0], **EXACT)
    torch.testing.assert_close(one_n, h_n[:, 0], **EXACT)


@pytest.mark.parametrize("backend", ["auto", "explicit", "reference"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_backend_is_eq_1_and_2(family, backend):
    rnn = layer(parametrization=family, backend=backend, num_layers=2, bidirectional=True)
    x = inputs(5, M)
    h, h_n = rnn(x)
    expected, expected_n = by_hand(rnn, x)
    torch.testing.assert_close(h, expected, **EXACT)
    torch.testing.assert_close(h_n, expected_n, **EXACT)


def test_without_bias_there_is_none():
    rnn = UnitaryRNN(M, N, bias=False, dtype=torch.float64)
    assert [name for name, _ in rnn.named_parameters() if "bias" in name] == []
    x = inputs(5, M)
    torch.testing.assert_close(rnn(x)[0], by_hand(rnn, x)[0], **EXACT)


def test_learned_initial_state_is_learned():
    rnn = UnitaryRNN(M, N, num_layers=2, bidirectional=True)
    rnn(torch.randn(3, 2, M))[0].abs().sum().backward()
    for name, p in rnn.named_parameters():
        if name.startswith("initial_state"):
            assert float(p.grad.abs().max()) > 0
    assert not any(name.startswith("initial_state") for name in UnitaryRNN(M, N, initial_state="zero").state_dict())


@pytest.mark.parametrize("family", FAMILIES)
def test_weight_hh_is_the_matrix(family):
    rnn = UnitaryRNN(M, N, parametrization=family)
    W = rnn.weight_hh_l0
    assert isinstance(W, nn.Parameter) == (family == "full")
    assert (W.shape, W.dtype) == ((N, N), torch.complex64)
    assert float(urnn.linalg.unitarity_defect(W)) <= urnn.linalg.unitarity_tol(N, W.dtype)
    if family != "full":
        assert torch.equal(W, rnn.parametrization_hh_l0())


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="weight_hh_l7"):
        UnitaryRNN(M, N, parametrization="restricted").weight_hh_l7


# Packed sequences


@pytest.mark.parametrize("start", ["learned", "given"])
@pytest.mark.parametrize("complex_input", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("order", ["sorted", "unsorted"])
@pytest.mark.parametrize("layout", [c for c in LAYOUTS if not c["batch_first"]], ids=name_of)
def test_packed_equals_one_by_one(layout, order, complex_input, start):
    """Values, last states, and the gradients of every parameter, the input and h_0."""
    rnn = layer(**layout)
    places, width = layout["num_layers"] * (1 + layout["bidirectional"]), N * (1 + layout["bidirectional"])
    lengths = LENGTHS if order == "unsorted" else sorted(LENGTHS, reverse=True)
    rows = [inputs(n, M, complex_input=complex_input).requires_grad_() for n in lengths]
    h_0 = inputs(places, len(rows), N, complex_input=True).requires_grad_() if start == "given" else None
    targets = [inputs(n, width, complex_input=True) for n in lengths]
    target_n = inputs(places, len(rows), N, complex_input=True)
    leaves = list(rnn.parameters())
    if h_0 is not None:  # which takes the place of the learned ones
        leaves = [p for name, p in rnn.named_parameters() if not name.startswith("initial_state")] + [h_0]

    apart = [rnn(x, None if h_0 is None else h_0[:, i]) for i, x in enumerate(rows)]
    loss = sum((h * c).real.sum() for (h, _), c in zip(apart, targets, strict=True))
    loss = loss + sum((h_n * target_n[:, i]).real.sum() for i, (_, h_n) in enumerate(apart))
    expected = torch.autograd.grad(loss, [*leaves, *rows])

    packed = pack_sequence([x.detach() for x in rows], enforce_sorted=order == "sorted")
    data = packed.data.clone().requires_grad_()
    out, h_n = rnn(packed._replace(data=data), h_0)
    padded, found_lengths = pad_packed_sequence(out)
    assert found_lengths.tolist() == list(lengths)
    loss = sum((padded[:n, i] * targets[i]).real.sum() for i, n in enumerate(lengths)) + (h_n * target_n).real.sum()
    *grads, grad_data = torch.autograd.grad(loss, [*leaves, data])

    for i, (h, last) in enumerate(apart):
        torch.testing.assert_close(padded[: lengths[i], i], h, **EXACT)
        torch.testing.assert_close(h_n[:, i], last, **EXACT)
    for found, wanted in zip(grads, expected[: len(leaves)], strict=True):
        torch.testing.assert_close(found, wanted, **EXACT)
    wanted = pack_sequence(list(expected[len(leaves) :]), enforce_sorted=order == "sorted").data
    torch.testing.assert_close(grad_data, wanted, **EXACT)


def test_packed_input_may_be_complex_and_batch_first_changes_nothing():
    rnn = layer(batch_first=True)
    packed = pack_sequence([inputs(n, M, complex_input=True) for n in LENGTHS], enforce_sorted=False)
    same = UnitaryRNN(M, N, dtype=torch.float64)
    same.load_state_dict(rnn.state_dict())
    assert torch.equal(rnn(packed)[0].data, same(packed)[0].data)


# The last state alone


def last_state_and_grads(rnn, x, h_0, target):
    """h_n and the gradients of a real function of it, with respect to the input, h_0 and every parameter in it."""
    leaves = [p for name, p in rnn.named_parameters() if not name.startswith("initial_state")]
    data = (x.data if isinstance(x, PackedSequence) else x).clone().requires_grad_()
    h_0 = h_0.clone().requires_grad_()
    h, h_n = rnn(x._replace(data=data) if isinstance(x, PackedSequence) else data, h_0)
    return h, h_n, torch.autograd.grad((h_n * target).real.sum(), [data, h_0, *leaves])


@pytest.mark.parametrize("checkpoint", [None, "sqrt"])
@pytest.mark.parametrize("form", ["batched", "unbatched", "packed", "packed_unsorted", "complex"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=name_of)
def test_last_state_alone_is_that_of_the_sequence(layout, form, checkpoint):
    rnn = layer(**layout)
    alone = UnitaryRNN(M, N, dtype=torch.float64, return_sequence=False, checkpoint=checkpoint, **layout)
    alone.load_state_dict(rnn.state_dict())
    batch = () if form == "unbatched" else (len(LENGTHS),)
    if form.startswith("packed"):
        lengths = LENGTHS if form == "packed_unsorted" else sorted(LENGTHS, reverse=True)
        x = pack_sequence([inputs(n, M) for n in lengths], enforce_sorted=form == "packed")
    elif form == "unbatched":
        x = inputs(20, M)
    else:
        x = inputs(*((*batch, 20) if layout["batch_first"] else (20, *batch)), M, complex_input=form == "complex")
    h_0, target = (
        inputs(layout["num_layers"] * (1 + layout["bidirectional"]), *batch, N, complex_input=True) for _ in range(2)
    )
    _, expected, expected_grads = last_state_and_grads(rnn, x, h_0, target)
    h, h_n, grads = last_state_and_grads(alone, x, h_0, target)
    assert h is None
    torch.testing.assert_close(h_n, expected, **EXACT)
    for found, wanted in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(found, wanted, **EXACT)


def test_last_state_alone_learns_its_initial_state_and_every_family():
    for family in FAMILIES:
        rnn = UnitaryRNN(M, N, 2, bidirectional=True, parametrization=family, return_sequence=False, checkpoint="sqrt")
        rnn(torch.randn(9, 2, M))[1].abs().sum().backward()
        assert all(float(p.grad.abs().max()) > 0 for p in rnn.parameters())


def test_a_checkpoint_of_returned_states_warns_and_changes_nothing():
    message = r"^checkpoint: returned states are in memory anyway, so 'sqrt' has no effect with return_sequence=True$"
    with pytest.warns(UserWarning, match=message):
        rnn = UnitaryRNN(M, N, checkpoint="sqrt")
    plain = UnitaryRNN(M, N)
    plain.load_state_dict(rnn.state_dict())
    x = torch.randn(9, 2, M)
    assert torch.equal(rnn(x)[0], plain(x)[0])


# Streaming and chunks


@pytest.mark.parametrize("family", FAMILIES)
def test_two_chunks_equal_the_whole(family):
    rnn = layer(parametrization=family, num_layers=2)
    x = inputs(7, 2, M)
    whole, whole_n = rnn(x)
    first, middle = rnn(x[:3])
    second, last = rnn(x[3:], middle)
    torch.testing.assert_close(torch.cat((first, second)), whole, **EXACT)
    torch.testing.assert_close(last, whole_n, **EXACT)


@pytest.mark.parametrize(("T", "B", "n"), [(1, 1, 1), (1, 2, 2), (3, 1, 2), (2, 0, 3)])
@pytest.mark.parametrize("family", FAMILIES)
def test_smallest_sizes(family, T, B, n):
    rnn = UnitaryRNN(1, n, num_layers=2, parametrization=family, dtype=torch.float64)
    x = inputs(T, B, 1)
    h, h_n = rnn(x)
    assert (h.shape, h_n.shape) == ((T, B, n), (2, B, n))
    for row in range(B):
        torch.testing.assert_close(h[:, row], by_hand(rnn, x[:, row])[0], **EXACT)
    h.abs().sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in rnn.parameters() if p.numel())


# Dropout


def test_dropout_drops_whole_complex_entries_between_layers_only():
    """One step, no bias, V of the second layer = I: the output is the first layer's after dropout."""
    n, p = 200, 0.25
    rnn = UnitaryRNN(M, n, 2, bias=False, dropout=p, initial_state="zero", dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_ih_l1.copy_(torch.eye(n))
    x = torch.ones(1, 5, M, dtype=torch.float64)
    h, h_n = rnn(x)
    below = h_n[0]
    assert torch.equal(below, rnn.eval()(x)[1][0])  # neither the input nor the first layer's last state is dropped
    rnn.train()
    kept = h[0] != 0
    torch.testing.assert_close(h[0][kept], below[kept] / (1 - p), **EXACT)  # Re and Im together, scaled by 1/(1 - p)
    share = float(kept.double().mean())
    assert abs(share - (1 - p)) < 5 * math.sqrt(p * (1 - p) / kept.numel())  # five standard deviations
    rnn.reset_parameters()
    assert bool((rnn(x)[0] != 0).all())  # nor is the last layer's output


def test_dropout_is_off_in_eval_and_reproducible_in_training():
    rnn = UnitaryRNN(M, N, 2, dropout=0.5)
    plain = UnitaryRNN(M, N, 2)
    plain.load_state_dict(rnn.state_dict())
    x = torch.randn(5, 2, M)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(rnn(x)[0])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    rnn.eval()
    assert torch.equal(rnn(x)[0], plain(x)[0])


def test_dropout_of_everything_leaves_the_upper_layer_without_input():
    rnn = UnitaryRNN(M, N, 2, dropout=1.0)
    with torch.no_grad():
        assert torch.equal(rnn(torch.randn(3, 2, M))[0], rnn(torch.randn(3, 2, M))[0])


def test_dropout_with_one_layer_warns():
    with pytest.warns(UserWarning, match=r"^dropout: works between layers, so 0.5 has no effect with num_layers=1$"):
        UnitaryRNN(M, N, dropout=0.5)


# Bad input


BAD_CALLS = {
    "not a tensor": (lambda: ([1.0], None), TypeError, r"^x: expected a torch.Tensor, got list$"),
    "four dimensions": (
        lambda: (torch.zeros(2, 2, 2, M), None),
        ValueError,
        r"^x: expected shape \(T, B, 3\) or \(T, 3\), got \(2, 2, 2, 3\)$",
    ),
    "one dimension": (lambda: (torch.zeros(M), None), ValueError, r"^x: expected shape .*, got \(3,\)$"),
    "wrong width": (lambda: (torch.zeros(2, 2, M + 1), None), ValueError, r"^x: expected shape .*, got \(2, 2, 4\)$"),
    "no step": (
        lambda: (torch.zeros(0, 2, M), None),
        ValueError,
        r"^x: expected at least one time step, got \(0, 2, 3\)",
    ),
    "double": (
        lambda: (torch.zeros(2, 2, M).double(), None),
        TypeError,
        r"^x: expected torch.float32 or torch.complex64, as the parameters are, got torch.float64\. x\.to\(torch",
    ),
    "integers": (
        lambda: (torch.zeros(2, 2, M).long(), None),
        TypeError,
        r"^x: expected torch.float32 .* got torch.int64",
    ),
    "bfloat16": (lambda: (torch.zeros(2, 2, M).bfloat16(), None), TypeError, r"^x: expected .* got torch.bfloat16"),
    "meta": (
        lambda: (torch.zeros(2, 2, M, device="meta"), None),
        ValueError,
        r"^x: expected the device of the parameters, cpu, got meta$",
    ),
    "h_0 no tensor": (lambda: (torch.zeros(2, 2, M), 0), TypeError, r"^h_0: expected a torch.Tensor, got int$"),
    "h_0 real": (
        lambda: (torch.zeros(2, 2, M), torch.zeros(1, 2, N)),
        TypeError,
        r"^h_0: expected torch.complex64, as the state is complex, got torch.float32$",
    ),
    "h_0 rows": (
        lambda: (torch.zeros(2, 2, M), torch.zeros(1, 3, N).cfloat()),
        ValueError,
        r"^h_0: expected shape \(1, 2, 4\), got \(1, 3, 4\)$",
    ),
    "h_0 batched for unbatched x": (
        lambda: (torch.zeros(2, M), torch.zeros(1, 1, N).cfloat()),
        ValueError,
        r"^h_0: expected shape \(1, 4\), got \(1, 1, 4\)$",
    ),
    "h_0 on meta": (
        lambda: (torch.zeros(2, 2, M), torch.zeros(1, 2, N, device="meta").cfloat()),
        ValueError,
        r"^h_0: expected the device of the parameters, cpu, got meta$",
    ),
    "packed width": (
        lambda: (pack_sequence([torch.zeros(2, M + 2)]), None),
        ValueError,
        r"^x: expected packed data of shape \(steps, 3\), got \(2, 5\)$",
    ),
    "packed type": (
        lambda: (pack_sequence([torch.zeros(2, M).double()]), None),
        TypeError,
        r"^x: expected torch.float32 or torch.complex64, .* got torch.float64",
    ),
    "packed h_0": (
        lambda: (pack_sequence([torch.zeros(2, M)]), torch.zeros(2, 1, N).cfloat()),
        ValueError,
        r"^h_0: expected shape \(1, 1, 4\), got \(2, 1, 4\)$",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_says_what_was_expected(case):
    make, error, message = BAD_CALLS[case]
    x, h_0 = make()
    with pytest.raises(error, match=message):
        UnitaryRNN(M, N)(x, h_0)


def test_batch_first_names_its_own_order():
    with pytest.raises(ValueError, match=r"^x: expected shape \(B, T, 3\) or \(T, 3\), got \(2, 2, 4\)$"):
        UnitaryRNN(M, N, batch_first=True)(torch.zeros(2, 2, 4))
    with pytest.raises(ValueError, match=r"^x: expected at least one time step"):
        UnitaryRNN(M, N, batch_first=True)(torch.zeros(2, 0, M))


BAD_OPTIONS = [
    ({"num_layers": 0}, ValueError, r"^num_layers: expected an int >= 1, got 0$"),
    ({"num_layers": True}, TypeError, r"^num_layers: expected an int, got bool"),
    ({"num_layers": 1.0}, TypeError, r"^num_layers: expected an int, got float"),
    ({"dropout": 1.5}, ValueError, r"^dropout: expected a number in \[0.0, 1.0\], got 1.5$"),
    ({"dropout": -0.1}, ValueError, r"^dropout: expected a number in"),
    ({"dropout": float("nan")}, ValueError, r"^dropout: expected a number in .* got nan$"),
    ({"dropout": "0.5"}, TypeError, r"^dropout: expected a number, got str"),
    ({"dropout": True}, TypeError, r"^dropout: expected a number, got bool"),
    ({"batch_first": 1}, TypeError, r"^batch_first: expected a bool, got int$"),
    ({"bidirectional": "yes"}, TypeError, r"^bidirectional: expected a bool, got str$"),
    ({"return_sequence": None}, TypeError, r"^return_sequence: expected a bool, got NoneType$"),
    ({"checkpoint": "sqr"}, ValueError, r"^checkpoint: expected one of \['sqrt'\], got 'sqr'. Did you mean 'sqrt'\?$"),
    ({"checkpoint": 2, "return_sequence": False}, ValueError, r"^checkpoint: expected one of \['sqrt'\], got 2$"),
    (
        {"checkpoint": "sqrt", "return_sequence": False, "backend": "reference"},
        ValueError,
        r"^checkpoint: expected None with backend='reference', whose backward is autograd's, got 'sqrt'",
    ),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS, ids=name_of)
def test_bad_options_say_what_was_expected(options, error, message):
    with pytest.raises(error, match=message):
        UnitaryRNN(M, N, **options)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(0, 3), min_size=0, max_size=4).map(tuple),
    dtype=st.sampled_from([torch.float32, torch.complex64, torch.float64, torch.int64, torch.bool]),
    batch_first=st.booleans(),
    bidirectional=st.booleans(),
)
def test_random_inputs_work_or_raise(shape, dtype, batch_first, bidirectional):
    rnn = UnitaryRNN(2, N, batch_first=batch_first, bidirectional=bidirectional)
    x = torch.ones(shape, dtype=dtype)
    steps = shape[1 if batch_first and len(shape) == 3 else 0] if shape else 0
    typed = dtype in (torch.float32, torch.complex64)
    if typed and len(shape) in (2, 3) and shape[-1] == 2 and steps:
        D = 1 + bidirectional
        batch = () if len(shape) == 2 else (shape[0 if batch_first else 1],)
        h, h_n = rnn(x)
        assert h.shape == (*shape[:-1], D * N)
        assert h_n.shape == (D, *batch, N)
        assert bool(torch.isfinite(h).all())
    else:
        with pytest.raises(ValueError if typed else TypeError, match=r"^x: expected .*, got "):
            rnn(x)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(shape=st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple), unbatched=st.booleans())
def test_random_initial_states_work_or_raise(shape, unbatched):
    rnn = UnitaryRNN(2, 3, num_layers=2)
    x = torch.ones((2, 2) if unbatched else (2, 1, 2))
    h_0 = torch.ones(shape, dtype=torch.complex64)
    if shape == ((2, 3) if unbatched else (2, 1, 3)):
        assert rnn(x, h_0)[1].shape == shape
    else:
        with pytest.raises(ValueError, match=r"^h_0: expected shape .*, got "):
            rnn(x, h_0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), bidirectional=st.booleans())
def test_random_lengths_give_each_rows_own_last_state(lengths, bidirectional):
    rnn = UnitaryRNN(2, 3, bidirectional=bidirectional, dtype=torch.float64)
    rows = [inputs(n, 2) for n in lengths]
    out, h_n = rnn(pack_sequence(rows, enforce_sorted=False))
    padded, _ = pad_packed_sequence(out)
    for i, x in enumerate(rows):
        torch.testing.assert_close(padded[: lengths[i], i], rnn(x)[0], **EXACT)
        torch.testing.assert_close(h_n[:, i], rnn(x)[1], **EXACT)
        assert bool((padded[lengths[i] :, i] == 0).all())

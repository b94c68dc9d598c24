"""``UnitaryRNNCell``: one step, equal to a step of the sequence."""

import pytest
import torch

import urnn
from urnn import UnitaryRNN, UnitaryRNNCell

FAMILIES = list(urnn.PARAMETRIZATIONS)
M, N = 3, 4
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def as_cell(rnn, **options):
    """The cell with the values of a layer."""
    cell = UnitaryRNNCell(M, N, dtype=torch.float64, **options)
    cell.load_state_dict({name.replace("_l0", ""): value for name, value in rnn.state_dict().items()})
    return cell


@pytest.mark.parametrize("complex_input", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["unbatched", "batched"])
@pytest.mark.parametrize("family", FAMILIES)
def test_stepping_the_cell_equals_the_sequence(family, batch, complex_input):
    rnn = UnitaryRNN(M, N, parametrization=family, dtype=torch.float64)
    cell = as_cell(rnn, parametrization=family)
    x = torch.randn(6, *batch, M, dtype=torch.complex128 if complex_input else torch.float64)
    h, states = None, []
    for x_t in x:
        h = cell(x_t, h)
        states.append(h)
    torch.testing.assert_close(torch.stack(states), rnn(x)[0], **EXACT)


@pytest.mark.parametrize("nonlinearity", list(urnn.ops.NONLINEARITIES))
@pytest.mark.parametrize(
    "options", [{}, {"bias_constraint": "nonpositive"}, {"initial_state": "zero"}, {"bias": False}]
)
def test_options_mean_the_same_as_on_the_layer(options, nonlinearity):
    rnn = UnitaryRNN(M, N, nonlinearity=nonlinearity, dtype=torch.float64, **options)
    cell = as_cell(rnn, nonlinearity=nonlinearity, **options)
    x = torch.randn(1, 2, M, dtype=torch.float64)
    torch.testing.assert_close(cell(x[0]), rnn(x)[0][0], **EXACT)


def test_shapes_are_those_of_gru_cell():
    gru, cell = torch.nn.GRUCell(M, N), UnitaryRNNCell(M, N)
    for batch in ((), (5,)):
        x, h = torch.randn(*batch, M), torch.randn(*batch, N)
        assert cell(x).shape == gru(x).shape
        assert cell(x, h.cfloat()).shape == gru(x, h).shape


@pytest.mark.parametrize(
    ("x", "h", "error", "message"),
    [
        ("x", None, TypeError, r"^x: expected a torch.Tensor, got str$"),
        (torch.zeros(2, 2, M), None, ValueError, r"^x: expected shape \(B, 3\) or \(3,\), got \(2, 2, 3\)$"),
        (torch.zeros(2, 5), None, ValueError, r"^x: expected shape \(B, 3\) or \(3,\), got \(2, 5\)$"),
        (torch.zeros(()), None, ValueError, r"^x: expected shape .*, got \(\)$"),
        (torch.zeros(2, M).double(), None, TypeError, r"^x: expected torch.float32 or torch.complex64"),
        (
            torch.zeros(2, M, device="meta"),
            None,
            ValueError,
            r"^x: expected the device of the parameters, cpu, got meta$",
        ),
        (torch.zeros(2, M), torch.zeros(2, N), TypeError, r"^h: expected torch.complex64, as the state is complex"),
        (torch.zeros(2, M), torch.zeros(3, N).cfloat(), ValueError, r"^h: expected shape \(2, 4\), got \(3, 4\)$"),
        (torch.zeros(M), torch.zeros(1, N).cfloat(), ValueError, r"^h: expected shape \(4,\), got \(1, 4\)$"),
    ],
)
def test_bad_input_says_what_was_expected(x, h, error, message):
    with pytest.raises(error, match=message):
        UnitaryRNNCell(M, N)(x, h)

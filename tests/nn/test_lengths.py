"""Rows of different lengths, given as numbers: the same as rows on their own, and as a PackedSequence."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from urnn import UnitaryRNN


@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}, {"batch_first": True}], ids=str)
def test_lengths_are_those_of_a_packed_sequence(options, generator):
    rnn = UnitaryRNN(3, 5, **options, dtype=torch.float64)
    first = options.get("batch_first", False)
    lengths = torch.tensor([4, 6, 1])
    x = torch.randn(6, 3, 3, generator=generator, dtype=torch.float64)
    x = x.transpose(0, 1) if first else x
    h, h_n = rnn(x, lengths=lengths)
    packed, packed_n = rnn(pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=False))
    parts, _ = pad_packed_sequence(packed._replace(data=torch.view_as_real(packed.data).flatten(1)), batch_first=first)
    assert torch.equal(torch.view_as_real(h).flatten(2), parts)
    assert torch.equal(h_n, packed_n)


def test_padding_enters_neither_states_nor_gradients(generator):
    rnn = UnitaryRNN(3, 5, dtype=torch.float64)
    lengths = torch.tensor([4, 6])
    x = torch.randn(6, 2, 3, generator=generator, dtype=torch.float64)
    grads = []
    for padding in (0.0, 1e3):
        x[4:, 0] = padding
        rnn.zero_grad()
        h, h_n = rnn(x, lengths=lengths)
        (h.abs().square().sum() + h_n.real.sum()).backward()
        grads.append([p.grad.clone() for p in rnn.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_lengths_that_say_nothing_are_refused():
    rnn = UnitaryRNN(3, 5)
    x, lengths = torch.zeros(6, 2, 3), torch.tensor([4, 6])
    with pytest.raises(ValueError, match="lengths: expected None with a PackedSequence"):
        rnn(pack_padded_sequence(x, torch.tensor([6, 4])), lengths=lengths)
    with pytest.raises(ValueError, match=r"lengths: expected None without a batch, got a tensor with x \(6, 3\)"):
        rnn(x[:, 0], lengths=lengths)
    with pytest.raises(ValueError, match=r"lengths: expected integers in \[0, 6\]"):
        rnn(x, lengths=lengths + 1)

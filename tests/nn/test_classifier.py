"""``nn.GRU`` replaced in a small classifier: the constructor, the readout and the import of the optimizer change."""

import pytest
import torch
from torch import nn

import urnn

T, CLASSES, HIDDEN = 8, 4, 24


def with_gru():
    body, head = nn.GRU(CLASSES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
    return body, head, torch.optim.Adam


def with_unitary_rnn():
    body, head = urnn.UnitaryRNN(CLASSES, HIDDEN), urnn.ComplexToReal(HIDDEN, CLASSES)
    return body, head, urnn.optim.Adam


@pytest.mark.parametrize("parts", [with_gru, with_unitary_rnn])
def test_both_learn_to_remember_the_first_symbol(parts):
    """Chance is log 4 = 1.39; a tenth of it means that the first of eight symbols is remembered."""
    body, head, optimizer_class = parts()
    body.flatten_parameters()
    optimizer = optimizer_class([*body.parameters(), *head.parameters()], lr=2e-2)
    losses = []
    for _ in range(200):
        symbols = torch.randint(CLASSES, (T, 32))
        x = nn.functional.one_hot(symbols, CLASSES).float()
        h, _ = body(x)
        loss = nn.functional.cross_entropy(head(h[-1]), symbols[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) / 10 < 0.139
    urnn.check_unitary(body)

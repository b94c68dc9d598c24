"""``UnitaryRNN``, used as ``nn.GRU``."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from urnn._checks import check_int, check_number, format_shape
from urnn.nn.recurrent import Recurrent
from urnn.ops import check_checkpoint
from urnn.parametrizations import Parametrization


class UnitaryRNN(Recurrent):
    r"""Layers of :math:`h_t = \sigma_b(W h_{t-1} + V x_t)` with unitary W (Eq. 1), used as ``nn.GRU``.

    The state is complex. ``ComplexToReal`` makes real outputs of it. Between layers the complex state goes on.

    Args:
        input_size: M, features of each input.
        hidden_size: N, complex entries of the state.
        num_layers: layers, each fed with the states of the one below.
        bias: whether b is learned; without, b = 0.
        batch_first: inputs and outputs are (B, T, .) instead of (T, B, .).
        dropout: probability with which a whole complex entry is dropped between layers in training.
        bidirectional: a second direction from the last step to the first, in each layer.
        parametrization: how W is represented: a name in ``urnn.PARAMETRIZATIONS``, or a callable such as
            ``functools.partial(urnn.parametrizations.Householder, reflections=8)``. With ``"full"`` W is itself a
            parameter and needs an optimizer of ``urnn.optim``; all others work with any optimizer.
        nonlinearity: ``"modrelu"`` (Eq. 2), ``"modrelu_epsilon"`` (the released code's form), or ``"hard"``.
        initial_state: ``"learned"`` or ``"zero"``, where no ``h_0`` is given.
        bias_constraint: None, or ``"nonpositive"`` for b <= 0, with which each step is 1-Lipschitz in the state (except
            with ``"hard"``, which jumps).
        backend: how the recurrence is computed: ``"auto"``, or a name in ``urnn.ops.BACKENDS``, or ``"reference"``.
        return_sequence: whether the states of all steps are returned. Without, the first result is None in their
            place, and h_n is as ever.
        checkpoint: ``"sqrt"`` keeps O(sqrt T) states of the last layer for the backward pass instead of T, and
            computes the others anew. For ``return_sequence=False``: states that are returned are in memory anyway. The
            layers below keep all theirs, which the layer above reads.
        device: where the parameters lie.
        dtype: float32/complex64 or float64/complex128; None means PyTorch's default precision.

    Shape (T steps, B rows, D directions, L layers; B is absent for unbatched input):
        x (T, B, M), real or complex, or a ``PackedSequence``; h_0 (D L, B, N), complex; lengths (B,), integers on the
        device of x: row b ends after so many steps, its further states are 0 (of a ``PackedSequence`` they are known).
        Returns h (T, B, D N) or a ``PackedSequence`` (None without ``return_sequence``), and h_n (D L, B, N), the state
        after each row's last step.

    Attributes:
        weight_ih_l0 (V), weight_hh_l0 (W), bias_l0 (b), initial_state_l0 (h_0), with ``_l1`` ... for further layers
        and ``_reverse`` behind the name for the second direction.

    >>> rnn = UnitaryRNN(10, 128)
    >>> h, h_n = rnn(torch.randn(50, 20, 10))
    >>> h.shape, h.dtype, h_n.shape
    (torch.Size([50, 20, 128]), torch.complex64, torch.Size([1, 20, 128]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        parametrization: str | Callable[..., Parametrization] = "full",
        nonlinearity: str = "modrelu",
        initial_state: str = "learned",
        bias_constraint: str | None = None,
        backend: str = "auto",
        return_sequence: bool = True,
        checkpoint: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            bias,
            parametrization=parametrization,
            nonlinearity=nonlinearity,
            initial_state=initial_state,
            bias_constraint=bias_constraint,
            backend=backend,
            device=device,
            dtype=dtype,
        )
        self.num_layers = check_int("num_layers", num_layers, 1)
        check_number("dropout", dropout, 0.0, 1.0)
        flags = {"batch_first": batch_first, "bidirectional": bidirectional, "return_sequence": return_sequence}
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise TypeError(f"{name}: expected a bool, got {type(value).__name__}")
        self.return_sequence, self.checkpoint = return_sequence, check_checkpoint(checkpoint, backend)
        if checkpoint is not None and return_sequence:
            warnings.warn(
                f"checkpoint: returned states are in memory anyway, so {checkpoint!r} has no effect with "
                "return_sequence=True",
                stacklevel=2,
            )
        if dropout and num_layers == 1:
            warnings.warn(f"dropout: works between layers, so {dropout} has no effect with num_layers=1", stacklevel=2)
        self.batch_first, self.dropout, self.bidirectional = batch_first, float(dropout), bidirectional
        directions = ("", "_reverse") if bidirectional else ("",)
        for layer in range(num_layers):
            for direction in directions:
                self._add_direction(f"_l{layer}{direction}", hidden_size * len(directions) if layer else input_size)
        self.reset_parameters()

    def load_unitary(self, W: Tensor, layer: int = 0, reverse: bool = False) -> None:
        """Set W of a layer and direction, for any family that can represent it."""
        check_int("layer", layer, 0, self.num_layers - 1)
        if reverse and not self.bidirectional:
            raise ValueError("reverse: expected False for a layer with bidirectional=False, got True")
        self._load_unitary(f"_l{layer}{'_reverse' if reverse else ''}", W)

    def flatten_parameters(self) -> None:
        """Does nothing; it is here because code written for ``nn.GRU`` calls it."""

    def forward(
        self, x: Tensor | PackedSequence, h_0: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence | None, Tensor]:
        """States of the last layer at all steps (None without ``return_sequence``), and last states of all layers."""
        if isinstance(x, PackedSequence):
            if lengths is not None:
                raise ValueError("lengths: expected None with a PackedSequence, which knows them, got a tensor")
            return self._forward_packed(x, h_0)
        x = self._check_input(x)
        batched = x.dim() == 3
        if x.dim() not in (2, 3) or x.shape[-1] != self.input_size:
            order = "(B, T, {})" if self.batch_first else "(T, B, {})"
            expected = f"{order} or (T, {{}})".format(self.input_size, self.input_size)
            raise ValueError(f"x: expected shape {expected}, got {format_shape(x.shape)}")
        if not batched:
            if lengths is not None:
                raise ValueError(f"lengths: expected None without a batch, got a tensor with x {format_shape(x.shape)}")
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        if x.shape[0] == 0:
            raise ValueError(f"x: expected at least one time step, got {format_shape(x.shape)} as (T, B, M)")
        if h_0 is not None:
            h_0 = self._check_h_0(h_0, x.shape[1] if batched else None)
        h, h_n = self._run_layers(x, h_0, lengths)
        if not batched:
            return None if h is None else h.squeeze(1), h_n.squeeze(1)
        return h.transpose(0, 1) if self.batch_first and h is not None else h, h_n

    def _forward_packed(self, packed: PackedSequence, h_0: Tensor | None) -> tuple[PackedSequence | None, Tensor]:
        """Rows keep the caller's order inside; only the packed output goes back to the order of ``packed``."""
        data = self._check_input(packed.data)
        if data.dim() != 2 or data.shape[-1] != self.input_size:
            raise ValueError(
                f"x: expected packed data of shape (steps, {self.input_size}), got {format_shape(data.shape)}"
            )
        padded, lengths = pad_packed_sequence(_with_data(packed, _as_real(data)))  # (T, B, M or 2 M), on the CPU (B,)
        x = _as_complex(padded) if data.is_complex() else padded
        if h_0 is not None:
            h_0 = self._check_h_0(h_0, x.shape[1])
        h, h_n = self._run_layers(x, h_0, lengths.to(x.device))
        if h is None:
            return None, h_n
        if packed.sorted_indices is not None:
            h, lengths = h.index_select(1, packed.sorted_indices), lengths[packed.sorted_indices.cpu()]
        repacked = pack_padded_sequence(_as_real(h), lengths)
        return _with_data(packed, _as_complex(repacked.data)), h_n

    def _check_h_0(self, h_0: object, rows: int | None) -> Tensor:
        """``h_0`` as (D L, B, N)."""
        batch = () if rows is None else (rows,)
        h = self._check_state("h_0", h_0, (len(self._suffixes), *batch, self.hidden_size), self.weight_ih_l0)
        return h.unsqueeze(1) if rows is None else h

    def _run_layers(self, x: Tensor, h_0: Tensor | None, lengths: Tensor | None) -> tuple[Tensor | None, Tensor]:
        directions = 2 if self.bidirectional else 1
        last = []
        states: list[Tensor] = []
        for layer in range(self.num_layers):
            if layer:
                x = _side_by_side(states)
                if self.dropout and self.training:
                    x = x * nn.functional.dropout(torch.ones_like(x.real), self.dropout)
            return_sequence = self.return_sequence or layer < self.num_layers - 1
            states = []
            for direction in range(directions):
                place = layer * directions + direction
                start = None if h_0 is None else h_0[place]
                h, h_n = self._run(
                    self._suffixes[place],
                    x,
                    start,
                    lengths,
                    reverse=direction == 1,
                    return_sequence=return_sequence,
                    checkpoint=self.checkpoint,
                )
                if h is not None:
                    states.append(h)
                last.append(h_n)
        return _side_by_side(states) if states else None, torch.stack(last)

    def _extra(self) -> list[str]:
        fields = {
            "num_layers": 1,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
            "return_sequence": True,
            "checkpoint": None,
        }
        return [f"{name}={getattr(self, name)!r}" for name, default in fields.items() if getattr(self, name) != default]


def _side_by_side(states: list[Tensor]) -> Tensor:
    """The states of all directions as (T, B, D N)."""
    return states[0] if len(states) == 1 else torch.cat(states, -1)


def _with_data(packed: PackedSequence, data: Tensor) -> PackedSequence:
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


def _as_real(x: Tensor) -> Tensor:
    """Complex (..., n) as real (..., 2 n): packing has no gradient for complex types."""
    return torch.view_as_real(x.resolve_conj()).flatten(-2) if x.is_complex() else x


def _as_complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))

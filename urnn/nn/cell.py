"""One step of the recurrence, for streams and for loops of one's own."""

from collections.abc import Callable

import torch
from torch import Tensor

from urnn._checks import check_shape, format_shape
from urnn.nn.recurrent import Recurrent
from urnn.parametrizations import Parametrization


class UnitaryRNNCell(Recurrent):
    r"""One step :math:`h' = \sigma_b(W h + V x)` (Eq. 1), used as ``nn.GRUCell``.

    Args: as ``UnitaryRNN``, whose layer gives the same states one step at a time.

    Shape:
        x (B, M) or (M,), real or complex; h (B, N) or (N,), complex, default ``initial_state``; h' as h.

    >>> cell = UnitaryRNNCell(10, 128)
    >>> h = cell(torch.randn(20, 10))
    >>> cell(torch.randn(20, 10), h).shape
    torch.Size([20, 128])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        parametrization: str | Callable[..., Parametrization] = "full",
        nonlinearity: str = "modrelu",
        initial_state: str = "learned",
        bias_constraint: str | None = None,
        backend: str = "auto",
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
        self._add_direction("", input_size)
        self.reset_parameters()

    def load_unitary(self, W: Tensor) -> None:
        """Set W, for any family that can represent it."""
        self._load_unitary("", W)

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """The next state."""
        x = self._check_input(x)
        if x.dim() not in (1, 2) or x.shape[-1] != self.input_size:
            raise ValueError(
                f"x: expected shape (B, {self.input_size}) or ({self.input_size},), got {format_shape(x.shape)}"
            )
        if h is not None:
            shape = (*x.shape[:-1], self.hidden_size)
            check_shape("h", self._check_state("h", h, shape, self.weight_ih), shape)
        batched = x.dim() == 2
        if not batched:
            x, h = x.unsqueeze(0), None if h is None else h.unsqueeze(0)
        _, new = self._run("", x.unsqueeze(0), h)
        return new if batched else new.squeeze(0)

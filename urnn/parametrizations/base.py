"""The contract of every family of unitary matrices.

A family is a module that owns its parameters and maps them to unitary matrices: ``family()`` is W. The map itself is
``matrix(*parameters)``, a pure function, so that vmap, the capacity analyser and ``urnn.unitary`` can call it with
tensors of their own. Leading dimensions are an ensemble: one matrix for each of its members.

To add a family: one file with a subclass, one line in ``PARAMETRIZATIONS``. The contract tests then run it.
"""

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from urnn._checks import check_int, check_precision, check_shape
from urnn._module import ComplexModule
from urnn._typing import Square, Vectors
from urnn.linalg import check_unitary_matrix, full_precision, unitarity_tol


class Parametrization(ComplexModule):
    """Base of all families of unitary (n, n) matrices.

    Args:
        n: size of the matrices.
        batch_shape: leading dimensions of the ensemble, empty for a single matrix.
        generator: source of randomness of the first values; None means PyTorch's own.
        device: where the parameters lie.
        dtype: float32/complex64 or float64/complex128; None means PyTorch's default precision.
    """

    direct: ClassVar[bool] = False
    """Whether W is itself the one parameter and an optimizer of ``urnn.optim`` has to keep it unitary."""

    def __init__(
        self,
        n: int,
        batch_shape: tuple[int, ...] = (),
        *,
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.n = check_int("n", n, 1)
        self.batch_shape = tuple(check_int("batch_shape", size, 0) for size in batch_shape)
        self._device = torch.device(device) if device is not None else torch.get_default_device()
        self._real, self._complex = check_precision("dtype", dtype)
        self._build()
        self.reset_parameters(generator)

    # What a family defines.

    def _build(self) -> None:
        """Register parameters and buffers, empty."""
        raise NotImplementedError

    def initial_values(self, generator: Generator | None = None) -> tuple[Tensor, ...]:
        """Random values for the parameters, in the order of ``parameters()``."""
        raise NotImplementedError

    def matrix(self, *parameters: Tensor) -> Square:
        """The map of the family: parameters to W."""
        raise NotImplementedError

    def right_inverse(self, W: Square) -> tuple[Tensor, ...]:
        """Parameter values with ``matrix(*values) == W``. A family with a movable base moves the base.

        Raises:
            NotImplementedError: the family has no algorithm for it.
            ValueError: ``W`` is no member of the family.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no right inverse: most unitary matrices are no member, and no algorithm is "
            "known that finds the parameters of those that are. parametrization='full' takes any W."
        )

    @property
    def num_real_params(self) -> int:
        """Number of real parameters of one matrix."""
        batch = len(self.batch_shape)
        return sum(math.prod(p.shape[batch:]) * (2 if p.is_complex() else 1) for p in self._own())

    def apply_to(self, x: Vectors) -> Vectors:
        """``W x`` for vectors along the last dimension; families with a cheaper way than the dense product take it."""
        return (self() @ x.unsqueeze(-1)).squeeze(-1)

    def chart(self) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Real coordinates around the present values: the point, and the smooth map from there to W."""
        parameters = [p.detach() for p in self._own()]
        shapes = [torch.view_as_real(p).shape if p.is_complex() else p.shape for p in parameters]
        flat = [(torch.view_as_real(p) if p.is_complex() else p).reshape(-1) for p in parameters]

        def to_matrix(theta: Tensor) -> Tensor:
            parts = theta.split([f.numel() for f in flat])
            values = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
            return self.matrix(
                *(
                    torch.complex(v[..., 0], v[..., 1]) if p.is_complex() else v
                    for v, p in zip(values, parameters, strict=True)
                )
            )

        return torch.cat(flat) if flat else torch.empty(0), to_matrix

    # What all families share.

    def forward(self) -> Square:
        """W, built from the present values."""
        return self.matrix(*self._own())

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw new values."""
        self._assign(self.initial_values(generator))

    def load_unitary(self, W: Tensor) -> None:
        """Set the parameters so that the family gives ``W``; nothing changes where that fails.

        Raises:
            ValueError, TypeError: ``W`` is not unitary, of another shape, or no member of the family.
            NotImplementedError: the family has no right inverse.
        """
        buffers = {name: buffer.clone() for name, buffer in self.named_buffers()}
        W = check_unitary_matrix("W", W, self._complex_dtype)
        check_shape("W", W, (*self.batch_shape, self.n, self.n))
        W = W.detach().to(self._own()[0].device)
        try:
            values = self.right_inverse(W)
            with torch.no_grad(), full_precision():
                distance = float((self.matrix(*values) - W).abs().max()) if W.numel() else 0.0
            if not distance <= 10 * unitarity_tol(self.n, W.dtype):
                raise ValueError(f"W: expected a member of {self!r}, the nearest found is {distance:.1e} away.")
        except Exception:
            for name, buffer in buffers.items():
                self._buffers[name] = buffer
            raise
        self._assign(values)

    def _own(self) -> tuple[nn.Parameter, ...]:
        return tuple(p for p in self._parameters.values() if p is not None)

    @property
    def _complex_dtype(self) -> torch.dtype:
        return check_precision("dtype", self._own()[0].dtype)[1]

    def _assign(self, values: tuple[Tensor, ...]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self._own(), values, strict=True):
                parameter.copy_(value)

    def _real_parameter(self, name: str, *shape: int) -> None:
        empty = torch.empty(*self.batch_shape, *shape, dtype=self._real, device=self._device)
        self.register_parameter(name, nn.Parameter(empty))

    def _complex_parameter(self, name: str, *shape: int) -> None:
        empty = torch.empty(*self.batch_shape, *shape, dtype=self._complex, device=self._device)
        self.register_parameter(name, nn.Parameter(empty))

    def _uniform(self, like: Tensor, bound: float, generator: Generator | None) -> Tensor:
        """Uniform on (-bound, bound), each of Re and Im where ``like`` is complex; drawn where the generator lives."""
        shape = torch.view_as_real(like).shape if like.is_complex() else like.shape
        real = check_precision("dtype", like.dtype)[0]
        device = like.device if generator is None else generator.device
        values = torch.empty(shape, dtype=real, device=device).uniform_(-bound, bound, generator=generator)
        return (torch.view_as_complex(values) if like.is_complex() else values).to(like.device)

    def options(self) -> Mapping[str, object]:
        """Arguments of the constructor beyond those of the base, as they print."""
        return {}

    def extra_repr(self) -> str:
        batch = {"batch_shape": self.batch_shape} if self.batch_shape else {}
        return ", ".join([str(self.n), *(f"{k}={v!r}" for k, v in {**batch, **self.options()}.items())])

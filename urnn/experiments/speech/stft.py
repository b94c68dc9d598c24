"""Spectra, the feature that is predicted, and the way back to audio.

Note [Edge frames]
Frame k is centred on sample k hop, and the signal is taken as 0 outside. Frames whose window reaches outside are the
edge frames; features leave them out, so no padding is ever predicted or scored. The way back keeps them as they were.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from urnn._checks import check_choice, check_int

FLOOR = 1e-5


def log_power(X: Tensor) -> Tensor:
    """10 log10(1e-5 + |X|^2), in dB: at least -50 and finite for silence too."""
    return 10 * torch.log10(FLOOR + torch.view_as_real(X).square().sum(-1))


def magnitude(feature: Tensor) -> Tensor:
    """|X| for a value of ``log_power``; 0 where no |X| has that value."""
    return (10 ** (feature / 10) - FLOOR).clamp_min(0).sqrt()


@dataclass(frozen=True)
class Feature:
    """A real feature of a complex spectrum, and the magnitude it stands for."""

    of: Callable[[Tensor], Tensor]
    magnitude: Callable[[Tensor], Tensor]


FEATURES = {"log_power": Feature(log_power, magnitude)}


@dataclass(frozen=True)
class Frames:
    """How audio becomes features.

    >>> Frames().bins, Frames().count(8000)
    (129, 61)
    """

    feature: str = "log_power"
    rate: int = 8000
    window: int = 256
    hop: int = 128

    def __post_init__(self) -> None:
        check_choice("feature", self.feature, FEATURES)
        check_int("rate", self.rate, 1)
        check_int("window", self.window, 2)
        check_int("hop", self.hop, 1, self.window // 2)

    @property
    def bins(self) -> int:
        """F, frequencies of a frame."""
        return self.window // 2 + 1

    def inner(self, samples: int) -> slice:
        """The frames whose window lies within a signal of so many samples."""
        half = self.window // 2
        first = -(-half // self.hop)
        return slice(first, max(first, (samples - (self.window - half)) // self.hop + 1))

    def count(self, samples: int) -> int:
        """Frames of the features."""
        inner = self.inner(samples)
        return int(inner.stop - inner.start)

    def spectrum(self, x: Tensor) -> Tensor:
        """STFT (K, F) of a signal (samples,), edge frames too: periodic Hann, centred, zeros outside."""
        window = torch.hann_window(self.window, dtype=x.dtype, device=x.device)
        return torch.stft(
            x, self.window, self.hop, window=window, center=True, pad_mode="constant", return_complex=True
        ).mT

    def features(self, x: Tensor) -> Tensor:
        """Features (T, F) of the inner frames."""
        return FEATURES[self.feature].of(self.spectrum(x)[self.inner(len(x))])

    def signal(self, X: Tensor, samples: int) -> Tensor:
        """The signal whose spectrum comes nearest to ``X``: least squares, exact where ``X`` is a spectrum."""
        window = torch.hann_window(self.window, dtype=X.real.dtype, device=X.device)
        return torch.istft(X.mT, self.window, self.hop, window=window, center=True, length=samples)

    def resynthesized(self, x: Tensor, features: Tensor) -> Tensor:
        """``x`` with the magnitudes of ``features`` (t, F) in its last t inner frames, and its own phase."""
        X = self.spectrum(x).clone()
        inner = self.inner(len(x))
        last = slice(inner.stop - len(features), inner.stop)
        phase = torch.where(X[last] == 0, torch.ones_like(X[last]), torch.sgn(X[last]))
        X[last] = FEATURES[self.feature].magnitude(features.to(x.dtype)) * phase
        return self.signal(X, len(x))

"""torch.optim's optimizers, except that unitary parameters move along U(n)."""

from urnn.optim.adam import Adam
from urnn.optim.rmsprop import RMSprop
from urnn.optim.sgd import SGD

__all__ = ["SGD", "Adam", "RMSprop"]

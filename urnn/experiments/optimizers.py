"""From the settings of a run to its optimizer and its rates."""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from urnn import optim

if TYPE_CHECKING:
    from urnn.experiments.config import Config


def build(config: "Config", model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a run, which clips gradients and adds noise to them before each step where it is to."""
    groups = _groups(config, model)
    unitary: dict[str, Any] = {
        "unitary_lr": config.unitary_lr,
        "unitary_step": config.unitary_step,
        "polish": config.polish,
        "weight_decay": config.weight_decay,
    }
    capturable = config.device.startswith("cuda")
    optimizer: torch.optim.Optimizer
    if config.optimizer == "rmsprop":
        optimizer = optim.RMSprop(
            groups,
            lr=config.lr,
            alpha=config.alpha,
            eps=config.eps,
            momentum=config.momentum,
            unitary_scaling=config.unitary_scaling,
            unitary_betas=config.unitary_betas if config.unitary_scaling == "scalar" else None,
            initial_square_avg=config.initial_square_avg,
            capturable=capturable,
            **unitary,
        )
    elif config.optimizer == "adam":
        optimizer = optim.Adam(
            groups,
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            unitary_betas=config.unitary_betas or (0.0, 0.99),
            capturable=capturable,
            **unitary,
        )
    else:
        optimizer = optim.SGD(groups, lr=config.lr, momentum=config.momentum, **unitary)
    if config.clip_value or config.clip_norm or config.gradient_noise:
        optimizer.register_step_pre_hook(_before_step(config, list(model.parameters())))
    return optimizer


def factor(config: "Config", iteration: int) -> float:
    """What all rates are multiplied with in this iteration, counted from 0."""
    if iteration < config.warmup:
        return (iteration + 1) / (config.warmup + 1)
    share = (iteration - config.warmup) / max(config.max_iterations - config.warmup, 1)
    if config.schedule == "cosine":
        return config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * share)) / 2
    if config.schedule == "exponential":
        return max(config.final_lr, 1e-12) ** share
    return 1.0


def set_rates(optimizer: torch.optim.Optimizer, share: float) -> None:
    """Set every rate to this share of what it was at first; that of W follows the ``lr`` of its group."""
    for group in optimizer.param_groups:
        lr = group["reference_lr"] * share
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def _groups(config: "Config", model: nn.Module) -> Iterable[dict[str, Any]]:
    """All parameters; b in a group of its own where it has its own rate."""
    if config.bias_lr is None:
        return [{"params": list(model.parameters())}]
    biases = [p for name, p in model.named_parameters() if name.startswith("rnn.bias")]
    others = [p for name, p in model.named_parameters() if not name.startswith("rnn.bias")]
    return [{"params": others}, {"params": biases, "lr": config.bias_lr}]


def _before_step(config: "Config", parameters: list[nn.Parameter]) -> Callable[..., None]:
    def change(*_: Any) -> None:
        if config.clip_value:
            for p in parameters:
                if p.grad is not None:  # Re and Im each
                    (torch.view_as_real(p.grad) if p.is_complex() else p.grad).clamp_(
                        -config.clip_value, config.clip_value
                    )
        if config.clip_norm:
            nn.utils.clip_grad_norm_(parameters, config.clip_norm)
        if config.gradient_noise:
            for p in parameters:
                if p.grad is not None:
                    p.grad.add_(torch.randn_like(p.grad), alpha=config.gradient_noise)

    return change

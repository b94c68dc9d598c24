"""What stands in docs/equations.md about the paper and its released code, measured."""

from typing import Any

import torch
from torch import Generator, Tensor

from urnn import ComplexToReal, UnitaryRNN, optim
from urnn._module import mark_unitary
from urnn.capacity import analyze
from urnn.experiments.tasks import Copy
from urnn.linalg import cayley_step, haar_unitary, lie_gradient, skew, unitarity_defect
from urnn.ops import NONLINEARITIES


def measure(seed: int = 0) -> dict[str, Any]:
    """All figures; takes about a minute."""
    generator = Generator().manual_seed(seed)
    return {
        "descent": descent(generator),
        "half_gradient": half_gradient(seed),
        "epsilon": epsilon(),
        "drift": drift(generator),
        "restricted_rank": {n: analyze("restricted", n).rank for n in range(2, 13)},
    }


def descent(generator: Generator, problems: int = 1000, n: int = 8, rate: float = 1e-3) -> dict[str, Any]:
    """Share of random problems f(W) = Re tr(C^H W) + ||K W - L||^2 that one small Cayley step lowers, for both A."""

    def draw() -> Tensor:
        return torch.randn(problems, n, n, dtype=torch.complex128, generator=generator)

    C, K, L = draw(), draw(), draw()
    W = haar_unitary(n, (problems,), generator=generator, dtype=torch.complex128)

    def f(W: Tensor) -> Tensor:
        return (C.conj() * W).real.sum((-2, -1)) + (K @ W - L).abs().square().sum((-2, -1))

    W.requires_grad_()
    (G,) = torch.autograd.grad(f(W).sum(), W)
    W = W.detach()
    step = rate / torch.linalg.matrix_norm(G, keepdim=True)
    lowered = {
        "corrected": cayley_step(W, lie_gradient(W, G), step),
        "printed": cayley_step(W, 2 * skew(G.mH @ W), step),
    }
    return {"problems": problems, **{k: int((f(new) < f(W)).sum()) for k, new in lowered.items()}}


def half_gradient(seed: int, networks: int = 20) -> dict[str, float]:
    """Cosine between the Lie-algebra gradients of the released code and of autograd, over random copy problems."""
    cosines = []
    task = Copy(time_steps=50)
    for network in range(networks):
        torch.manual_seed(seed + network)
        rnn, readout = UnitaryRNN(task.inputs, 32), ComplexToReal(32, task.outputs)
        x, y = task.batch(20, Generator().manual_seed(seed + network))
        directions = []
        for half in (False, True):
            rnn.half_gradient = half
            logits = readout(rnn(x)[0])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            (G,) = torch.autograd.grad(loss, rnn.weight_hh_l0)
            directions.append(torch.view_as_real(lie_gradient(rnn.weight_hh_l0.detach(), G)).flatten())
        cosines.append(float(torch.cosine_similarity(directions[0], directions[1], dim=0)))
    return {"networks": networks, "smallest": min(cosines), "mean": sum(cosines) / networks, "largest": max(cosines)}


def epsilon(modulus: float = 0.03, steps: int = 2000) -> dict[str, float]:
    """Share of its modulus that an entry keeps over many steps at b = 0, by Eq. 2 and by the released code."""
    kept: dict[str, float] = {"modulus": modulus, "steps": steps}
    for name in ("modrelu", "modrelu_epsilon"):
        z = torch.tensor([modulus + 0j], dtype=torch.complex128)
        for _ in range(steps):
            z = NONLINEARITIES[name].forward(z, torch.zeros(1, dtype=torch.float64))
        kept[name] = float(z.abs()) / modulus
    return kept


def drift(generator: Generator, n: int = 64, steps: int = 10_000) -> dict[str, float]:
    """max|W^H W - I| after many float32 Cayley steps on random gradients, with and without the polish."""
    found: dict[str, float] = {"n": n, "steps": steps}
    for polish in (False, True):
        W = torch.nn.Parameter(haar_unitary(n, generator=generator, dtype=torch.complex64))
        mark_unitary(W)
        optimizer = optim.SGD([W], lr=1e-2, polish=polish)
        for _ in range(steps):
            W.grad = torch.randn(n, n, dtype=torch.complex64, generator=generator)
            optimizer.step()
        found["with_polish" if polish else "without_polish"] = float(unitarity_defect(W))
    return found

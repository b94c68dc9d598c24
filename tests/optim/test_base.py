"""All optimizers: torch.optim's on ordinary parameters, moving along U(n) on unitary ones."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, StepLR

import urnn
from urnn.linalg import unitarity_defect

EXACT = {"rtol": 1e-12, "atol": 1e-12}
TARGET = 2e-6  # design.md section 7: max|W^H W - I| of float32 for ever


def ordinary_parameters():
    generator = torch.Generator().manual_seed(5)
    real = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 2), (4,), ())]
    cplx = [nn.Parameter(torch.randn(shape, dtype=torch.complex64, generator=generator)) for shape in ((3, 2), (4,))]
    return [*real, *cplx]


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# Ordinary parameters


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("groups", ["none", "mixed", "apart"])
def test_ordinary_parameters_are_stepped_by_torch(ordinary, groups, foreach, new_unitary, drive):
    """Bit for bit, with no unitary parameter around, with one in the same group, and with one in a group of its own."""
    case, options = ordinary
    mine, theirs = ordinary_parameters(), ordinary_parameters()
    W = new_unitary(dtype=torch.complex64)
    start = W.detach().clone()
    options = {"lr": 0.05, "foreach": foreach, **options}
    if groups == "apart":
        optimizer = case.ours([{"params": mine}, {"params": [W], "weight_decay": 0.0}], **options)
    else:
        optimizer = case.ours([*mine, W] if groups == "mixed" else mine, **options)
    drive(optimizer, [*mine, W])
    drive(case.theirs(theirs, **options), theirs)
    assert equal(mine, theirs)
    assert torch.equal(W, start) == (groups == "none")
    assert float(unitarity_defect(W)) < TARGET


@pytest.mark.parametrize("ours", [urnn.optim.SGD, urnn.optim.Adam])
def test_fused_steps_of_ordinary_parameters_are_torchs(ours, new_unitary, drive):
    mine, theirs = ([p for p in ordinary_parameters() if not p.is_complex()] for _ in range(2))
    W = new_unitary(dtype=torch.complex64)
    drive(ours([*mine, W], lr=0.05, fused=True), [*mine, W])
    drive(getattr(torch.optim, ours.__name__)(theirs, lr=0.05, fused=True), theirs)
    assert equal(mine, theirs)
    assert float(unitarity_defect(W)) < TARGET


def test_complex_entries_are_stepped_as_re_and_im(ordinary, drive):
    """An unconstrained complex parameter moves as the pair of real ones that it is made of."""
    case, options = ordinary
    z = nn.Parameter(torch.randn(3, 2, dtype=torch.complex128))
    pair = nn.Parameter(torch.view_as_real(z.detach()).clone())
    first, second = (case.ours([p], lr=0.05, **options) for p in (z, pair))
    for _ in range(4):
        z.grad = torch.randn(3, 2, dtype=torch.complex128)
        pair.grad = torch.view_as_real(z.grad).clone()
        first.step()
        second.step()
    torch.testing.assert_close(torch.view_as_real(z.detach()), pair.detach(), **EXACT)


def test_weight_decay_reaches_ordinary_parameters_alone(case, new_unitary, drive):
    def run(weight_decay):
        W, p = new_unitary(), nn.Parameter(torch.ones(3))
        drive(case.ours([W, p], lr=0.05, weight_decay=weight_decay), [W, p])
        return W, p

    (W, p), (W_free, p_free) = run(0.1), run(0.0)
    assert torch.equal(W, W_free)
    assert not torch.equal(p, p_free)


# Unitary parameters


@pytest.fixture
def matmul():
    """PyTorch's setting for float32 products, put back afterwards."""
    setting = torch.backends.cuda.matmul
    before = setting.fp32_precision
    yield setting
    setting.fp32_precision = before


def problem(n=16, columns=64):
    """Find W from its products: half the mean squared error over columns, with a solution on U(n)."""
    generator = torch.Generator().manual_seed(2)
    X = torch.randn(n, columns, dtype=torch.complex64, generator=generator)
    Y = urnn.linalg.haar_unitary(n, generator=generator) @ X
    return lambda W: (W @ X - Y).abs().square().sum() / (2 * columns)


def test_the_loss_falls_and_w_stays_unitary(unitary, new_unitary):
    case, options = unitary
    f, W = problem(), new_unitary(16, dtype=torch.complex64)
    optimizer = case.ours([W], **options)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        loss = f(W)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert float(unitarity_defect(W)) < TARGET
    assert losses[-1] < 0.1 * losses[0]


def test_without_polish_w_drifts(unitary, new_unitary, drive):
    case, options = unitary
    defects = []
    for polish in (True, False):
        W = new_unitary(8, dtype=torch.complex64)
        drive(case.ours([W], **{**options, "lr": 0.05}, polish=polish), [W], steps=300)
        defects.append(float(unitarity_defect(W)))
    assert defects[0] < TARGET
    assert defects[1] > 3 * defects[0]


@pytest.mark.long
@pytest.mark.parametrize("n", [64, 128])
def test_soak(unitary, n, new_unitary, matmul):
    """20000 float32 steps on a random problem, of which each step sees other columns; TF32 is on for the program."""
    case, options = unitary
    matmul.fp32_precision = "tf32"
    generator = torch.Generator().manual_seed(3)
    target = urnn.linalg.haar_unitary(n, generator=generator)
    W = new_unitary(n, dtype=torch.complex64)
    optimizer = case.ours([W], **options)
    for _ in range(20000):
        X = torch.randn(n, 8, dtype=torch.complex64, generator=generator)
        noise = torch.randn(n, 8, dtype=torch.complex64, generator=generator)
        with torch.no_grad():
            W.grad = (W @ X - target @ X - 0.1 * noise) @ X.mH / 8
        optimizer.step()
    assert float(unitarity_defect(W)) < TARGET
    assert float((W.detach() - target).norm()) < 0.5 * n**0.5  # two random ones are (2 n)^(1/2) apart


def test_the_products_precision_of_the_program_comes_back(case, new_unitary, drive, matmul):
    matmul.fp32_precision = "tf32"
    W = new_unitary()
    drive(case.ours([W]), [W], steps=1)
    assert matmul.fp32_precision == "tf32"


def test_an_ensemble_equals_its_members(unitary, new_unitary):
    case, options = unitary
    together = new_unitary(4, 3, 2)
    alone = []
    for i in range(6):
        alone.append(new_unitary(4))
        with torch.no_grad():
            alone[i].copy_(together.flatten(0, 1)[i])
    one, many = case.ours([together], **options), [case.ours([p], **options) for p in alone]
    for _ in range(4):
        together.grad = torch.randn_like(together)
        one.step()
        for i, optimizer in enumerate(many):
            alone[i].grad = together.grad.flatten(0, 1)[i].clone()
            optimizer.step()
    torch.testing.assert_close(together.detach().flatten(0, 1), torch.stack(alone).detach(), **EXACT)


def test_parameters_of_one_size_move_as_alone(unitary, new_unitary, drive):
    """Also where sizes, types and ensembles differ, and where one joins later than the other."""
    case, options = unitary
    kinds = [((5,), torch.complex128), ((5,), torch.complex128), ((3,), torch.complex128), ((5, 2), torch.complex128)]
    kinds += [((5,), torch.complex64), ((5, 3), torch.complex128)]

    def run(chosen):
        parameters = [new_unitary(*size, dtype=dtype, seed=i) for i, (size, dtype) in enumerate(kinds)]
        optimizer = case.ours([parameters[i] for i in chosen], **options)
        for step in range(4):
            for i, p in enumerate(parameters):
                generator = torch.Generator().manual_seed(100 * step + i)
                late = i == 1 and step < 2
                p.grad = None if late else torch.randn(p.shape, dtype=p.dtype, generator=generator)
            optimizer.step()
        return parameters

    together = run(range(len(kinds)))
    for i, p in enumerate(together):
        tolerance = EXACT if p.dtype == torch.complex128 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(p, run([i])[i], **tolerance)


def test_a_strided_parameter_moves_as_a_contiguous_one(unitary, new_unitary, drive):
    case, options = unitary
    W, view = new_unitary(), new_unitary()
    view.data = view.data.mT.contiguous().mT
    assert not view.is_contiguous()
    for p in (W, view):
        drive(case.ours([p], **options), [p])
    torch.testing.assert_close(W, view, **EXACT)


def test_capturable_changes_nothing(unitary, new_unitary, drive):
    case, options = unitary
    if not case.capturable:
        pytest.skip(f"torch.optim.{case} has no capturable: it keeps no count of steps")
    results = []
    for capturable in (False, True):
        parameters = [new_unitary(5, 2), new_unitary(5, 3, seed=2), new_unitary(5), new_unitary(4)]
        optimizer = case.ours(parameters, capturable=capturable, **options)
        drive(optimizer, parameters[:1], steps=2)  # so that one is older than the rest
        drive(optimizer, parameters)
        results.append([p.detach() for p in parameters])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


@pytest.mark.parametrize("option", ["none", "zero"])
def test_no_gradient_and_zero_gradient_leave_w(unitary, option, new_unitary):
    case, options = unitary
    W, other = new_unitary(), new_unitary(seed=2)
    start = W.detach().clone()
    optimizer = case.ours([W, other], **options)
    for _ in range(3):
        W.grad = None if option == "none" else torch.zeros_like(W)
        other.grad = torch.randn_like(other)
        optimizer.step()
    assert (len(optimizer.state[W]) == 0) == (option == "none")
    torch.testing.assert_close(W.detach(), start, rtol=0, atol=1e-15 if option == "zero" else 0)


def test_maximize_is_the_negative_gradient(unitary, new_unitary, drive):
    case, options = unitary
    up, down = new_unitary(), new_unitary()
    first, second = case.ours([up], maximize=True, **options), case.ours([down], **options)
    for _ in range(3):
        up.grad = torch.randn_like(up)
        down.grad = -up.grad
        first.step()
        second.step()
    assert torch.equal(up, down)


def test_a_small_step_lowers_the_loss_of_every_problem(unitary):
    """The first step of each optimizer is against A, whatever its scale."""
    case, options = unitary
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        W = urnn.parametrizations.Full(6, dtype=torch.complex128, generator=generator).weight
        C = torch.randn(6, 6, dtype=torch.complex128, generator=generator)
        before = (W @ C).diagonal().real.sum()
        before.backward()
        case.ours([W], **{**options, "lr": 1e-4}).step()
        assert (W @ C).diagonal().real.sum().item() < before.item()


def test_n_1_is_a_phase_and_moves(unitary, new_unitary, drive):
    case, options = unitary
    W = new_unitary(1)
    start = W.detach().clone()
    drive(case.ours([W], **options), [W])
    assert not torch.equal(W, start)
    assert float(unitarity_defect(W)) < 1e-14


# The optimizer as an object of torch.optim


def steps_of(case, parameters, drive, **options):
    drive(case.ours(parameters, **options), parameters)
    return [p.detach().clone() for p in parameters]


def both_kinds(new_unitary):
    return [new_unitary(), nn.Parameter(torch.full((3,), 2.0, dtype=torch.float64))]


def test_rate_by_default_and_by_name(case, new_unitary, drive):
    """``unitary_lr=None`` follows ``lr`` at the documented factor."""
    factor = 1.0 if case.ours is urnn.optim.SGD else 0.3
    follows = steps_of(case, both_kinds(new_unitary), drive, lr=0.05)
    named = steps_of(case, both_kinds(new_unitary), drive, lr=0.05, unitary_lr=factor * 0.05)
    still = steps_of(case, both_kinds(new_unitary), drive, lr=0.05, unitary_lr=0.0)
    assert equal(follows, named)
    torch.testing.assert_close(still[0], new_unitary().detach(), **EXACT)
    assert torch.equal(still[1], named[1])


@pytest.mark.parametrize("unitary_lr", [None, 0.04])
def test_a_scheduler_scales_both_rates(case, unitary_lr, new_unitary, drive):
    parameters = both_kinds(new_unitary)
    optimizer = case.ours(parameters, lr=0.05, unitary_lr=unitary_lr)
    LambdaLR(optimizer, lambda _: 0.25)
    drive(optimizer, parameters)
    quarter = None if unitary_lr is None else 0.25 * unitary_lr
    expected = steps_of(case, both_kinds(new_unitary), drive, lr=0.25 * 0.05, unitary_lr=quarter)
    assert equal(parameters, expected)


@pytest.mark.parametrize("unitary_lr", [None, 0.04])
def test_a_scheduler_that_ends_at_zero_stops_both(case, unitary_lr, new_unitary, drive):
    parameters = both_kinds(new_unitary)
    optimizer = case.ours(parameters, lr=0.05, unitary_lr=unitary_lr)
    scheduler = StepLR(optimizer, 1, gamma=0.0)
    drive(optimizer, parameters, steps=1)
    scheduler.step()
    before = [p.detach().clone() for p in parameters]
    drive(optimizer, parameters, steps=2, first=1)
    torch.testing.assert_close([p.detach() for p in parameters], before, **EXACT)


def test_a_tensor_as_rate(case, new_unitary, drive):
    rates = {"lr": torch.tensor(2**-5).double(), "unitary_lr": torch.tensor(2**-6).double()}
    found = steps_of(case, both_kinds(new_unitary), drive, foreach=False, **rates)
    wanted = steps_of(case, both_kinds(new_unitary), drive, foreach=False, lr=2**-5, unitary_lr=2**-6)
    torch.testing.assert_close(found, wanted, **EXACT)


def test_hooks_run_once(case, new_unitary, drive):
    """Also after torch.optim's own class was patched by an instance of it."""
    case.theirs([nn.Parameter(torch.ones(1))])
    parameters = both_kinds(new_unitary)
    optimizer = case.ours(parameters)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    drive(optimizer, parameters, steps=2)
    assert calls == ["pre", "post"] * 2


def test_a_subclass_steps_and_hooks_once(case, new_unitary, drive):
    made = type("Mine", (case.ours,), {})
    parameters = both_kinds(new_unitary)
    optimizer = made(parameters, lr=0.05)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    drive(optimizer, parameters)
    assert calls == ["pre"] * 4
    assert equal(parameters, steps_of(case, both_kinds(new_unitary), drive, lr=0.05))


def test_a_closure_is_called_once_with_gradients_on(case, new_unitary):
    W, p = both_kinds(new_unitary)
    start = W.detach().clone()
    optimizer = case.ours([W, p])
    calls = []

    def closure():
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = W.real.sum() + p.square().sum()
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    assert calls == [True]
    assert loss.item() == pytest.approx(start.real.sum().item() + 12.0)
    assert not torch.equal(W, start)
    assert not torch.equal(p, torch.full_like(p, 2.0))


def through_state_dict(case, options, parameters, optimizer):
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    twins = [copy.deepcopy(p) for p in parameters]
    urnn._module.mark_unitary(twins[0])
    new = case.ours(twins, lr=1.0)  # all options come with the state
    new.load_state_dict(torch.load(file, weights_only=True))
    return new, twins


def through_deepcopy(case, options, parameters, optimizer):
    new = copy.deepcopy(optimizer)
    return new, new.param_groups[0]["params"]


def through_pickle(case, options, parameters, optimizer):
    new = pickle.loads(pickle.dumps(optimizer))
    return new, new.param_groups[0]["params"]


@pytest.mark.parametrize("way", [through_state_dict, through_deepcopy, through_pickle])
def test_a_copy_continues_bit_for_bit(unitary, way, new_unitary, drive):
    case, options = unitary
    parameters = both_kinds(new_unitary)
    optimizer = case.ours(parameters, **options)
    drive(optimizer, parameters, steps=3)
    new, twins = way(case, options, parameters, optimizer)
    assert not any(a is b for a, b in zip(parameters, twins, strict=True))
    drive(optimizer, parameters, steps=3, first=3)
    drive(new, twins, steps=3, first=3)
    assert equal(parameters, twins)


def test_groups_are_added_with_their_own_options(case, new_unitary, drive):
    W, p = both_kinds(new_unitary)
    optimizer = case.ours([p], lr=0.05)
    optimizer.add_param_group({"params": [W], "unitary_lr": 0.04, "unitary_step": "exponential"})
    drive(optimizer, [W, p])
    whole = steps_of(case, both_kinds(new_unitary), drive, lr=0.05, unitary_lr=0.04, unitary_step="exponential")
    assert equal([W, p], whole)


def test_a_refused_group_changes_nothing(bad, new_unitary):
    case, options, error, message = bad
    optimizer = case.ours([nn.Parameter(torch.ones(2))], lr=0.05)
    if "lr" in options:
        pytest.skip("torch.optim checks lr in the constructor alone")
    before = len(optimizer.param_groups)
    with pytest.raises(error, match=message):
        optimizer.add_param_group({"params": [new_unitary()], **options})
    assert len(optimizer.param_groups) == before


def test_bad_options_say_what_was_expected(bad, new_unitary):
    case, options, error, message = bad
    with pytest.raises(error, match=message):
        case.ours([new_unitary()], **options)


def test_differentiable_is_torchs_without_unitary_parameters(case):
    p = nn.Parameter(torch.ones(2))
    case.ours([p], differentiable=True)


def test_zero_grad(case, new_unitary):
    W, p = both_kinds(new_unitary)
    optimizer = case.ours([W, p])
    W.grad, p.grad = torch.ones_like(W), torch.ones_like(p)
    optimizer.zero_grad(set_to_none=False)
    assert float(W.grad.abs().max()) == float(p.grad.abs().max()) == 0
    optimizer.zero_grad()
    assert W.grad is None
    assert p.grad is None


def test_named_parameters_are_taken(case, drive):
    def run(name):
        torch.manual_seed(0)
        rnn = urnn.UnitaryRNN(2, 3)
        drive(case.ours(getattr(rnn, name)(), lr=0.05), list(rnn.parameters()))
        return list(rnn.parameters())

    assert equal(run("named_parameters"), run("parameters"))


def test_a_frozen_w_stays(case, new_unitary):
    W, p = both_kinds(new_unitary)
    W.requires_grad_(False)
    start = W.detach().clone()
    optimizer = case.ours([W, p])
    p.sum().backward()
    optimizer.step()
    assert torch.equal(W, start)


def test_printing_shows_the_unitary_options(case, new_unitary):
    text = repr(case.ours([new_unitary()], unitary_lr=0.5))
    assert "unitary_lr: 0.5" in text
    assert "unitary_step: cayley" in text


# A foreign optimizer


def test_torchs_own_optimizer_leaves_un_and_check_unitary_says_so(case):
    rnn = urnn.UnitaryRNN(2, 4, num_layers=2)
    assert urnn.check_unitary(rnn) < 1e-5
    optimizer = case.theirs(rnn.parameters(), lr=0.1)
    rnn(torch.randn(3, 2, 2))[0].abs().sum().backward()
    optimizer.step()
    defect = float(unitarity_defect(rnn.weight_hh_l0))
    with pytest.raises(
        ValueError,
        match=r"^weight_hh_l0: expected a unitary matrix, .*, got .* cause is an optimizer that is not from urnn.optim",
    ) as caught:
        urnn.check_unitary(rnn)
    assert f"got {defect:.1e}" in str(caught.value)


# Rates that are given, whatever changes lr


@pytest.mark.parametrize("change", ["one cycle", "plateau", "by hand"])
def test_a_given_rate_keeps_its_ratio_to_lr(change, new_unitary):
    W = new_unitary()
    optimizer = urnn.optim.SGD([W], lr=0.1, unitary_lr=0.02)
    schedulers = torch.optim.lr_scheduler
    if change == "one cycle":
        scheduler = schedulers.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    elif change == "plateau":
        scheduler = schedulers.ReduceLROnPlateau(optimizer, patience=0)
    for step in range(8):
        W.grad = torch.randn_like(W)
        optimizer.step()
        if change == "one cycle":
            scheduler.step()
        elif change == "plateau":
            scheduler.step(float(step))
        else:
            optimizer.param_groups[0]["lr"] *= 0.5
        group = optimizer.param_groups[0]
        assert optimizer._rate(group) == pytest.approx(0.2 * group["lr"])


def test_momentum_may_be_switched_on_later(new_unitary):
    W = new_unitary()
    optimizer = urnn.optim.SGD([W], lr=0.1)
    for momentum in (0.0, 0.9):
        optimizer.param_groups[0]["momentum"] = momentum
        W.grad = torch.randn_like(W)
        optimizer.step()
    assert float(unitarity_defect(W)) < 1e-6


def test_a_state_of_torchs_own_optimizer_can_be_loaded(new_unitary):
    W = new_unitary()
    plain = torch.optim.Adam([W], lr=0.03)
    W.grad = torch.randn_like(W)
    plain.step()
    W = new_unitary()
    optimizer = urnn.optim.Adam([W])
    optimizer.load_state_dict(plain.state_dict())
    W.grad = torch.randn_like(W)
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] == 0.03
    assert float(unitarity_defect(W)) < 1e-6

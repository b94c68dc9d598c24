"""The layers inside PyTorch's own machinery: precision, autocast, compile, export, copies, functional calls, vmap."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

import urnn
from urnn import ComplexLinear, ComplexToReal, ModReLU, UnitaryRNN, UnitaryRNNCell
from urnn.linalg import unitarity_defect, unitarity_tol

FAMILIES = list(urnn.PARAMETRIZATIONS)
M, N = 3, 4
PAIRS = {torch.float32: (torch.float32, torch.complex64), torch.float64: (torch.float64, torch.complex128)}
COMPLEX_MODULE_WARNING = "Complex modules are a new feature"  # torch's own, about .to(complex dtype)


def model(family="full", dtype=None):
    """All layers of the package in a plain container."""
    return nn.ModuleDict(
        {
            "body": nn.ModuleList([UnitaryRNN(M, N, 2, parametrization=family, bidirectional=True, dtype=dtype)]),
            "cell": UnitaryRNNCell(2 * N, N, parametrization=family, dtype=dtype),
            "sigma": ModReLU(N, dtype=dtype),
            "mix": ComplexLinear(N, N, dtype=dtype),
            "head": ComplexToReal(N, 2, dtype=dtype),
        }
    )


def run(layers, x):
    h, _ = layers["body"][0](x)
    return layers["head"](layers["mix"](layers["sigma"](layers["cell"](h[-1]))))


def check_types(module, real):
    for name, p in module.named_parameters():
        assert p.dtype in PAIRS[real], name
        assert p.is_complex() == any(part in name for part in COMPLEX_NAMES), name
    for _, W in unitary_matrices(module):
        assert W.dtype == PAIRS[real][1]
        assert float(unitarity_defect(W)) <= unitarity_tol(N, W.dtype)


COMPLEX_NAMES = ("weight", "initial_state", "vectors", "mix.bias")


def unitary_matrices(module):
    for name, layer in module.named_modules():
        if isinstance(layer, UnitaryRNN):
            yield name, layer.weight_hh_l1_reverse.detach()
        elif isinstance(layer, UnitaryRNNCell):
            yield name, layer.weight_hh.detach()


# Precision


@pytest.mark.parametrize(
    ("dtype", "real"),
    [
        (None, torch.float32),
        (torch.float32, torch.float32),
        (torch.complex64, torch.float32),
        (torch.float64, torch.float64),
        (torch.complex128, torch.float64),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_type_at_construction(family, dtype, real):
    layers = model(family, dtype)
    check_types(layers, real)
    y = run(layers, torch.randn(3, 2, M, dtype=real))
    assert y.dtype == real


def test_default_type_of_pytorch_is_the_default():
    torch.set_default_dtype(torch.float64)
    layers = model()
    torch.set_default_dtype(torch.float32)
    check_types(layers, torch.float64)


CONVERSIONS = {
    "double": (lambda m: m.double(), torch.float32, torch.float64),
    "to_float64": (lambda m: m.to(torch.float64), torch.float32, torch.float64),
    "to_keyword": (lambda m: m.to(dtype=torch.float64), torch.float32, torch.float64),
    "to_tensor": (lambda m: m.to(torch.zeros(1).double()), torch.float32, torch.float64),
    "float": (lambda m: m.float(), torch.float64, torch.float32),
    "to_float32": (lambda m: m.to("cpu", torch.float32), torch.float64, torch.float32),
    "there_and_back": (lambda m: m.double().float(), torch.float32, torch.float32),
    "same": (lambda m: m.float(), torch.float32, torch.float32),
}


@pytest.mark.parametrize("conversion", CONVERSIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_conversions_keep_imaginary_parts_and_unitarity(family, conversion):
    convert, start, end = CONVERSIONS[conversion]
    layers = model(family, start)
    before = {name: value.clone() for name, value in layers.state_dict().items()}
    assert convert(layers) is layers
    check_types(layers, end)
    for name, value in layers.state_dict().items():
        if value.is_floating_point() or value.is_complex():
            assert bool((value.imag != 0).any()) if value.is_complex() and "bias" not in name else True
            torch.testing.assert_close(value.to(before[name].dtype), before[name], rtol=1e-6, atol=1e-6)
    assert run(layers, torch.randn(3, 2, M, dtype=end)).dtype == end


@pytest.mark.parametrize(("start", "end"), [(torch.float32, torch.complex128), (torch.float64, torch.complex64)])
@pytest.mark.parametrize("family", FAMILIES)
def test_conversion_to_a_complex_type_asks_for_its_precision(family, start, end):
    layer = UnitaryRNN(M, N, 2, parametrization=family, bidirectional=True, dtype=start)
    W = layer.weight_hh_l0.detach().clone()
    with pytest.warns(UserWarning, match=COMPLEX_MODULE_WARNING):
        layer.to(end)
    check_types(layer, end.to_real())
    torch.testing.assert_close(layer.weight_hh_l0.detach().to(torch.complex64), W.to(torch.complex64))


def test_conversion_inside_sequential():
    layers = nn.Sequential(nn.Linear(M, M), UnitaryRNN(M, N, parametrization="exponential"))
    V = layers[1].weight_ih_l0.detach().clone()
    layers.double()
    assert layers[0].weight.dtype == torch.float64
    assert torch.equal(layers[1].weight_ih_l0, V.to(torch.complex128))
    assert float(urnn.check_unitary(layers)) <= unitarity_tol(N, torch.complex128)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.bfloat16, lambda m: m.to(torch.float16)])
def test_half_precision_is_refused_before_anything_changes(convert, family):
    for module in (UnitaryRNN(M, N, parametrization=family), UnitaryRNNCell(M, N, parametrization=family), ModReLU(N)):
        before = {name: (id(p), p.detach().clone()) for name, p in module.state_dict(keep_vars=True).items()}
        with pytest.raises(
            TypeError, match=r"^dtype: expected float32 or float64 .* got torch.b?float16\..* torch.autocast"
        ):
            convert(module)
        for name, p in module.state_dict(keep_vars=True).items():
            assert id(p) == before[name][0]
            assert torch.equal(p, before[name][1])


# Autocast


@pytest.mark.parametrize("family", FAMILIES)
def test_autocast_computes_in_float32(family):
    rnn, head = UnitaryRNN(M, N, parametrization=family), ComplexToReal(N, 2)
    cell, mix = UnitaryRNNCell(M, N, parametrization=family), ComplexLinear(N, N)
    x = torch.randn(6, 2, M)

    def compute():
        h, h_n = rnn(x)
        return h, h_n, head(h), mix(h), cell(x[0])

    plain = compute()
    with torch.autocast("cpu", torch.bfloat16):
        cast = compute()
    for a, b in zip(plain, cast, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_under_autocast_are_those_of_float32(family, backend):
    """The backward pass runs outside of the context, as PyTorch recommends."""
    rnn = UnitaryRNN(M, N, parametrization=family, backend=backend)
    x = torch.randn(6, 2, M)
    wanted = torch.autograd.grad(rnn(x)[0].abs().sum(), list(rnn.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        loss = rnn(x)[0].abs().sum()
    for a, b in zip(torch.autograd.grad(loss, list(rnn.parameters())), wanted, strict=True):
        assert torch.equal(a, b)


def test_half_input_is_taken_where_autocast_made_it():
    layers = nn.ModuleList([nn.Linear(M, M), UnitaryRNN(M, N), UnitaryRNNCell(M, N)])
    x = torch.randn(5, 2, M)
    with torch.autocast("cpu", torch.bfloat16):
        y = layers[0](x)
        h, _ = layers[1](y)
        state = layers[2](y[0])
    assert y.dtype == torch.bfloat16
    assert torch.equal(h, layers[1](y.float())[0])
    assert torch.equal(state, layers[2](y[0].float()))
    h.abs().sum().backward()
    assert bool(layers[0].weight.grad.abs().max() > 0)


# Compilation and export


# Dynamo makes an instance of autograd.Function while it traces one, and PyTorch warns of that.
dynamo_warns = pytest.mark.filterwarnings(
    "ignore:<class 'torch.autograd.function.Function'> should not be inst:DeprecationWarning"
)


def training_step(rnn, head, x):
    h, h_n = rnn(x)
    return head(h[-1]).square().sum() + h_n.abs().sum()


def gradients(step, modules, x):
    loss = step(*modules, x)
    return loss, torch.autograd.grad(loss, [p for module in modules for p in module.parameters()])


@dynamo_warns
@pytest.mark.parametrize("family", FAMILIES)
def test_compiles_as_one_graph(family):
    modules = UnitaryRNN(M, N, parametrization=family), ComplexToReal(N, 2)
    torch._dynamo.reset()
    compiled = torch.compile(training_step, fullgraph=True, backend="aot_eager")
    x = torch.randn(4, 2, M)
    loss, grads = gradients(compiled, modules, x)
    wanted_loss, wanted = gradients(training_step, modules, x)
    torch.testing.assert_close(loss, wanted_loss)
    torch.testing.assert_close(grads, wanted)


@dynamo_warns
@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"bias_constraint": "nonpositive"},
        {"num_layers": 2, "bidirectional": True, "return_sequence": False, "checkpoint": "sqrt"},
    ],
)
def test_options_compile_as_one_graph(options):
    rnn = UnitaryRNN(M, N, **options)
    torch._dynamo.reset()
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    for x in (torch.randn(4, 2, M), torch.randn(4, M)):
        torch.testing.assert_close(compiled(x), rnn(x))


# Inductor says of every graph with complex numbers that it leaves those operations to eager mode.
@dynamo_warns
@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex operators:UserWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # on import, in torch
def test_compiles_with_inductor():
    modules = UnitaryRNN(M, N), ComplexToReal(N, 2)
    torch._dynamo.reset()
    x = torch.randn(4, 2, M)
    loss, grads = gradients(torch.compile(training_step, fullgraph=True), modules, x)
    wanted_loss, wanted = gradients(training_step, modules, x)
    torch.testing.assert_close(loss, wanted_loss)
    torch.testing.assert_close(grads, wanted)


@pytest.mark.parametrize(
    "options",
    [
        {"parametrization": "full"},
        {"parametrization": "restricted"},
        {"return_sequence": False},
        {"return_sequence": False, "checkpoint": "sqrt"},
    ],
)
def test_exports_with_dynamic_steps_and_rows(options):
    rnn = UnitaryRNN(M, N, 2, bidirectional=True, **options)
    T, B = torch.export.Dim("T", min=1, max=64), torch.export.Dim("B", min=1, max=64)
    program = torch.export.export(rnn, (torch.randn(7, 3, M),), dynamic_shapes=({0: T, 1: B},))
    for steps, rows in ((7, 3), (1, 5), (33, 2)):
        x = torch.randn(steps, rows, M)
        torch.testing.assert_close(program.module()(x), rnn(x))


# Copies


def through_pickle(module):
    return pickle.loads(pickle.dumps(module))


def through_a_file(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def through_a_state_dict(module):
    """With the safe loader, into a model of other values."""
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(module)
    for layer in other.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


@pytest.mark.parametrize("way", [copy.deepcopy, through_pickle, through_a_file, through_a_state_dict])
@pytest.mark.parametrize("family", FAMILIES)
def test_copies_are_equal_and_apart(family, way):
    layers = model(family)
    x = torch.randn(3, 2, M)
    twin = way(layers)
    assert list(twin.state_dict()) == list(layers.state_dict())
    before = run(layers, x)
    assert torch.equal(run(twin, x), before)
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    assert torch.equal(run(layers, x), before)


@pytest.mark.parametrize("family", FAMILIES)
def test_functional_call_takes_other_parameters(family):
    rnn, other = UnitaryRNN(M, N, parametrization=family), UnitaryRNN(M, N, parametrization=family)
    x = torch.randn(3, 2, M)
    assert torch.equal(functional_call(rnn, other.state_dict(), x)[0], other(x)[0])
    assert not torch.equal(rnn(x)[0], other(x)[0])


# Ensembles


@pytest.mark.parametrize("family", FAMILIES)
def test_vmap_over_an_ensemble_equals_a_loop(family):
    """Values, and gradients by ``vmap(grad)``; members share the input or have their own."""
    members = [UnitaryRNN(M, N, 2, parametrization=family, bidirectional=True, dtype=torch.float64) for _ in range(3)]
    parameters, buffers = stack_module_state(members)
    parameters = {name: p.detach() for name, p in parameters.items()}
    base = members[0]
    target = torch.randn(2 * N, dtype=torch.complex128)

    def loss(parameters, buffers, x):
        h, h_n = functional_call(base, (parameters, buffers), (x,))
        return (h * target).real.sum() + h_n.abs().square().sum()

    shared = torch.randn(4, 2, M, dtype=torch.float64)
    for x, dim in ((shared, None), (torch.stack([shared, 2 * shared, -shared]), 0)):
        values = vmap(loss, in_dims=(0, 0, dim))(parameters, buffers, x)
        grads = vmap(grad(loss), in_dims=(0, 0, dim))(parameters, buffers, x)
        for i, member in enumerate(members):
            member.zero_grad()
            value = loss(dict(member.named_parameters()), dict(member.named_buffers()), x if dim is None else x[i])
            value.backward()
            torch.testing.assert_close(values[i], value.detach(), rtol=1e-12, atol=1e-12)
            for name, p in member.named_parameters():
                torch.testing.assert_close(grads[name][i], p.grad, rtol=1e-10, atol=1e-10)


# Derivatives


def as_function(rnn):
    names = [name for name, _ in rnn.named_parameters()]

    def f(x, h_0, *values):
        return functional_call(rnn, dict(zip(names, values, strict=True)), (x, h_0))

    return f, tuple(p.detach().clone().requires_grad_() for p in rnn.parameters())


DERIVED = [(family, "modrelu") for family in FAMILIES] + [
    ("full", name) for name in urnn.ops.NONLINEARITIES if name != "modrelu"
]


@pytest.mark.parametrize(("family", "nonlinearity"), DERIVED)
def test_first_derivatives(family, nonlinearity):
    rnn = UnitaryRNN(2, 3, parametrization=family, nonlinearity=nonlinearity, initial_state="zero", dtype=torch.float64)
    f, values = as_function(rnn)
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    h_0 = torch.randn(1, 2, 3, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(f, (x, h_0, *values), fast_mode=family != "full")


@pytest.mark.parametrize(("family", "nonlinearity"), DERIVED)
def test_second_derivatives_through_the_reference(family, nonlinearity):
    options = {"nonlinearity": nonlinearity, "initial_state": "zero", "backend": "reference", "dtype": torch.float64}
    f, values = as_function(UnitaryRNN(2, 3, parametrization=family, **options))
    x = torch.randn(2, 1, 2, dtype=torch.float64, requires_grad=True)
    h_0 = torch.randn(1, 1, 3, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradgradcheck(f, (x, h_0, *values), fast_mode=True)


@pytest.mark.parametrize("make", [UnitaryRNN, UnitaryRNNCell])
def test_a_second_derivative_of_a_fused_backend_names_the_cure(make):
    module = make(M, N)
    x = torch.randn(1, 2, M)
    h = module(x)[0] if make is UnitaryRNN else module(x[0])
    (first,) = torch.autograd.grad(h.abs().square().sum(), module.parameters().__next__(), create_graph=True)
    with pytest.raises(RuntimeError, match=r"no second derivative.*backend='reference'"):
        first.abs().sum().backward()


# Weights that others move


def test_pruning_and_weight_norm_work():
    from torch.nn.utils import parametrizations, prune

    x = torch.randn(5, 3, 4)
    rnn = urnn.UnitaryRNN(4, 6)
    prune.l1_unstructured(rnn, "weight_ih_l0", amount=0.5)
    assert rnn(x)[0].shape == (5, 3, 6)
    assert int((rnn.weight_ih_l0 == 0).sum()) == 12
    assert parametrizations.weight_norm(urnn.UnitaryRNN(4, 6), "bias_l0")(x)[0].shape == (5, 3, 6)


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0"])
def test_a_family_may_be_put_on_a_weight_of_the_layer(name):
    rnn = urnn.unitary(urnn.UnitaryRNN(6, 6), name, family="householder", reflections=2)
    rnn(torch.randn(5, 3, 6))[0].abs().sum().backward()
    assert all(p.grad is not None for p in rnn.parameters())
    assert urnn.check_unitary(rnn) < 1e-5


def test_a_stacked_ensemble_trains_on_the_group_once_marked():
    parameters, buffers = torch.func.stack_module_state([urnn.UnitaryRNN(2, 5) for _ in range(3)])
    urnn.mark_unitary(parameters["weight_hh_l0"])
    base = urnn.UnitaryRNN(2, 5)
    optimizer = urnn.optim.Adam(parameters.values(), lr=0.1)

    def run(p, b, x):
        return torch.func.functional_call(base, (p, b), (x,))[0]

    for _ in range(3):
        optimizer.zero_grad()
        torch.func.vmap(run, (0, 0, None))(parameters, buffers, torch.randn(4, 2, 2)).abs().sum().backward()
        optimizer.step()
    assert float(urnn.linalg.unitarity_defect(parameters["weight_hh_l0"]).max()) < 1e-6

"""The one wording of ``<argument>: expected ..., got ...``."""

import pytest
import torch

from urnn import _checks as checks

CPU, META = torch.zeros(2), torch.zeros(2, device="meta")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: checks.check_precision("dtype", torch.float16),
            TypeError,
            "dtype: expected float32, float64, complex64 or",
        ),
        (
            lambda: checks.check_precision("dtype", torch.int8),
            TypeError,
            "complex128, got torch.int8. PyTorch has no complex",
        ),
        (
            lambda: checks.check_choice("name", "ab", ["abc", "x"]),
            ValueError,
            "name: expected one of ['abc', 'x'], got 'ab'. Did",
        ),
        (lambda: checks.check_choice("name", "zzz", ["abc"]), ValueError, "name: expected one of ['abc'], got 'zzz'"),
        (lambda: checks.check_choice("name", 3, ["abc"]), ValueError, "name: expected one of ['abc'], got 3"),
        (
            lambda: checks.check_choice("name", ["abc"], ["abc"]),
            ValueError,
            "name: expected one of ['abc'], got ['abc']",
        ),
        (lambda: checks.check_int("n", 0, 1), ValueError, "n: expected an int >= 1, got 0"),
        (lambda: checks.check_int("n", 4, 1, 3), ValueError, "n: expected an int in [1, 3], got 4"),
        (lambda: checks.check_int("n", True, 0), TypeError, "n: expected an int, got bool (True)"),
        (lambda: checks.check_int("n", 1.0, 0), TypeError, "n: expected an int, got float (1.0)"),
        (lambda: checks.check_int("n", torch.tensor(1), 0), TypeError, "n: expected an int, got Tensor"),
        (lambda: checks.check_number("p", -1, 0.0), ValueError, "p: expected a number in [0.0, inf), got -1"),
        (lambda: checks.check_number("p", 2, 0.0, 1.0), ValueError, "p: expected a number in [0.0, 1.0], got 2"),
        (
            lambda: checks.check_number("p", 1.0, 0.0, 1.0, open_end=True),
            ValueError,
            "p: expected a number in [0.0, 1.0), got 1.0",
        ),
        (
            lambda: checks.check_number("p", float("nan"), 0.0),
            ValueError,
            "p: expected a number in [0.0, inf), got nan",
        ),
        (lambda: checks.check_number("p", True, 0.0), TypeError, "p: expected a number, got bool (True)"),
        (lambda: checks.check_number("p", "1", 0.0), TypeError, "p: expected a number, got str ('1')"),
        (lambda: checks.check_tensor("x", [1]), TypeError, "x: expected a torch.Tensor, got list"),
        (lambda: checks.check_complex("W", CPU), TypeError, "W: expected complex64 or complex128, got torch.float32"),
        (
            lambda: checks.check_complex("W", CPU.cfloat(), torch.complex128),
            TypeError,
            "expected torch.complex128, got torch.comp",
        ),
        (lambda: checks.check_shape("h", CPU, (3,)), ValueError, "h: expected shape (3,), got (2,)"),
        (lambda: checks.check_shape("h", CPU, ("B", 2)), ValueError, "h: expected shape (B, 2), got (2,)"),
        (
            lambda: checks.check_square("W", torch.zeros(2, 3)),
            ValueError,
            "W: expected shape (..., n, n) with n >= 1, got (2, 3)",
        ),
        (
            lambda: checks.check_square("W", torch.zeros(3)),
            ValueError,
            "W: expected shape (..., n, n) with n >= 1, got (3,)",
        ),
        (lambda: checks.check_square("W", torch.zeros(0, 0)), ValueError, "with n >= 1, got (0, 0)"),
        (
            lambda: checks.check_same_device("h", META, "x", CPU),
            ValueError,
            "h: expected the device of x, cpu, got meta",
        ),
    ],
)
def test_messages(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


def test_what_is_right_passes():
    assert checks.check_precision("dtype", None) == (torch.float32, torch.complex64)
    assert checks.check_precision("dtype", torch.complex128) == (torch.float64, torch.complex128)
    assert checks.check_choice("name", "abc", ["abc"]) == "abc"
    assert [checks.check_int("n", value, 1, 3) for value in (1, 3)] == [1, 3]
    checks.check_number("p", 0, 0.0, 1.0)
    checks.check_number("p", 1.0, 0.0, 1.0)
    checks.check_number("p", torch.tensor(-5.0), 0.0)  # a tensor is not read
    assert checks.check_tensor("x", CPU) is CPU
    checks.check_complex("W", CPU.cfloat())
    checks.check_complex("W", CPU.cfloat(), torch.complex64)
    checks.check_shape("h", torch.zeros(7, 2), ("B", 2))
    assert checks.check_square("W", torch.zeros(5, 3, 3)) == 3
    checks.check_same_device("h", CPU, "x", CPU)


def test_shapes_print_as_tuples():
    assert [checks.format_shape(shape) for shape in ((), (1,), ("T", 2))] == ["()", "(1,)", "(T, 2)"]

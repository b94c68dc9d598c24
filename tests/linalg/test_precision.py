from collections.abc import Iterator

import pytest
import torch

from urnn.linalg import full_precision


@pytest.fixture(params=["tf32", "ieee"])
def chosen(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = request.param
    yield request.param
    torch.backends.cuda.matmul.fp32_precision = before


def test_the_products_inside_are_exact_and_the_choice_comes_back(chosen: str) -> None:
    with full_precision():
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        with full_precision():
            assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == chosen


def test_the_choice_comes_back_after_an_error(chosen: str) -> None:
    with pytest.raises(ZeroDivisionError), full_precision():
        raise ZeroDivisionError
    assert torch.backends.cuda.matmul.fp32_precision == chosen

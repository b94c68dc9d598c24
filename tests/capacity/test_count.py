import pytest

from urnn.capacity import counting_verdict, unitary_dimension


@pytest.mark.parametrize(
    ("parameters", "n", "verdict"), [(56, 8, False), (63, 8, False), (64, 8, None), (49, 7, None), (0, 1, False)]
)
def test_fewer_parameters_than_dimensions_miss_almost_all(parameters: int, n: int, verdict: bool | None) -> None:
    assert counting_verdict(parameters, n) is verdict


def test_dimension_of_the_unitary_group() -> None:
    assert [unitary_dimension(n) for n in (1, 2, 8)] == [1, 4, 64]
    with pytest.raises(ValueError, match=r"n: expected an int >= 1, got 0"):
        unitary_dimension(0)

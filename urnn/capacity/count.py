"""What counting alone says: Lemma 3.1 and Theorem 3.2."""

from urnn._checks import check_int


def unitary_dimension(n: int) -> int:
    """dim U(n) = n^2 (Lemma 3.1)."""
    return check_int("n", n, 1) ** 2


def counting_verdict(parameters: int, n: int) -> bool | None:
    """False where P < n^2, as the family then misses almost all of U(n) (Theorem 3.2); None where counting cannot tell.

    >>> counting_verdict(7 * 8, 8), counting_verdict(7 * 7, 7)
    (False, None)
    """
    return False if parameters < unitary_dimension(n) else None

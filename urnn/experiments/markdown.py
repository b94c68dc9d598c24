"""Tables of the pages that are made from results."""

from collections.abc import Sequence


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(table(["N", "error"], [["4", "1e-9"]]))
    | N | error |
    | --- | --- |
    | 4 | 1e-9 |
    """
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)

"""Every row of docs/reliability.md has its test, and as many cases as it says."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reliability.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and "---" not in line and not line.startswith("| promise")
]


def test_every_row_has_its_test_with_as_many_cases():
    promised = {row[2].strip("`"): int(re.match(r"\d+", row[3])[0]) for row in ROWS}
    assert len(promised) == len(ROWS) > 20
    words = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not long",
        *promised,
    ]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    collected = Counter(line.split("[")[0] for line in found.stdout.splitlines() if "::" in line)
    assert collected == promised


def test_every_row_is_whole():
    assert {len(row) for row in ROWS} == {5}
    assert all(row[0] and row[1] for row in ROWS)

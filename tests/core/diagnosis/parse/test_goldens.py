"""One short log for each dialect, beside what is read of it.

After an intended change, run this file with `TRAINMASTER_WRITE_GOLDENS=1` and read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer_runtime.core.diagnosis.parse import LogParser
from trainer_runtime.core.diagnosis.parse.dialects import FALLBACK, HEADED

_FOLDER = Path(__file__).parents[3] / "golden" / "parse"
_LOGS = sorted(_FOLDER.glob("*.log"))


def described(log: bytes) -> str:
    """A line for every point and event, and the coverage."""
    parser = LogParser()
    parsed = parser.feed(log)
    parsed.extend(parser.close())
    lines = [
        f"{p.line_offset:6d} rank {p.rank} segment {p.segment} step {p.step}"
        f"{'?' if p.inferred else ''} {p.key} = {p.value!r}" + ("" if p.t is None else f" at {p.t}")
        for p in parsed
    ]
    lines += [f"{e.line_offset:6d} {e.kind} at step {e.step}: {e.text}" for e in parsed.events]
    coverage = parser.coverage
    lines.append(f"read {coverage.lines_read} of {coverage.lines_with_numbers} lines with numbers")
    lines += [f"not understood: {sample}" for sample in coverage.samples]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", _LOGS, ids=lambda path: path.stem)
def test_a_log_is_read_as_its_golden_says(path: Path) -> None:
    golden = path.with_suffix(".txt")
    described_points = described(path.read_bytes())
    if os.environ.get("TRAINMASTER_WRITE_GOLDENS"):
        golden.write_text(described_points)
    assert described_points == golden.read_text()


def test_every_dialect_has_a_golden() -> None:
    names = {path.stem.partition(".")[0] for path in _LOGS}
    assert {dialect.name for dialect in (*HEADED, FALLBACK)} <= names

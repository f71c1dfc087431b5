"""Logs of real trainings, where available, and synthetic ones of the same formats."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from support.core.parse_oracle import PlainPoints, read_plainly
from support.core.synthetic_logs import DIALECTS, made_log, reordered_json

from trainer_runtime.core.diagnosis.parse import LogParser

_LOGS = Path(
    os.environ.get("TRAINMASTER_LOGS") or Path(__file__).parents[4].parent / "shared" / "logs"
)
_FILES = sorted(path for path in _LOGS.glob("*/*") if path.is_file()) if _LOGS.is_dir() else []


def parsed(log: bytes) -> PlainPoints:
    parser = LogParser()
    batches = parser.feed(log)
    batches.extend(parser.close())
    return [(point.key, point.value) for point in batches]


def rounded(points: PlainPoints) -> Counter[tuple[str, str]]:
    return Counter((key, f"{value:.12g}") for key, value in points)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_plain_reader_finds_the_same_points(dialect: str) -> None:
    log = made_log(dialect, 1200)
    assert rounded(parsed(log)) == rounded(read_plainly(log))
    assert len(parsed(log)) >= 1200


def test_the_plain_reader_finds_the_same_in_nested_objects_of_any_order() -> None:
    log = reordered_json(500)
    assert rounded(parsed(log)) == rounded(read_plainly(log))


@pytest.mark.slow
@pytest.mark.skipif(not _FILES, reason="no folder of real logs: set TRAINMASTER_LOGS to one")
def test_the_plain_reader_finds_the_same_points_in_real_logs() -> None:
    different = {}
    for path in _FILES:
        log = path.read_bytes()
        ours, plain = parsed(log), read_plainly(log)
        if rounded(ours) != rounded(plain):
            different[path.name] = (rounded(ours) - rounded(plain), rounded(plain) - rounded(ours))
    assert not different

"""Which files of a run are compressed, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_runtime.core.files.compacted import REGION_BYTES, archive_of
from trainer_runtime.core.lease.session import Session
from trainer_runtime.host.files.compaction import KEPT_BYTES
from trainer_runtime.host.files.files import write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.supervise.old_regions import OldRegions

_LONG = b'{"filler":1}\n' * ((KEPT_BYTES + 2 * REGION_BYTES) // 13 + 1)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of two attempts, whose files have two old regions each."""
    run = RunFolder(tmp_path)
    for path in (run.journal, run.attempt(1).events, run.attempt(2).events):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_LONG)
    return run


def poll(regions: OldRegions, times: int = 20) -> None:
    for _ in range(times):
        regions.poll([1, 2])


def archives(path: Path) -> int:
    return len(list(Path(archive_of(str(path), 0)).parent.glob("*.gz")))


def test_a_minute_later_the_journal_and_all_events_are_compressed(run: RunFolder) -> None:
    now = [1000.0]
    regions = OldRegions(run, lambda: now[0])
    poll(regions)
    assert archives(run.journal) == 0
    now[0] += 60.0
    poll(regions, times=1)
    assert archives(run.journal) == 1
    poll(regions)
    files = (run.journal, run.attempt(1).events, run.attempt(2).events)
    assert [archives(path) for path in files] == [2, 2, 2]


def test_what_is_written_later_is_compressed_later(run: RunFolder) -> None:
    now = [1000.0]
    regions = OldRegions(run, lambda: now[0])
    now[0] += 60.0
    poll(regions)
    with run.attempt(2).events.open("ab") as events:
        events.write(_LONG[:REGION_BYTES])
    poll(regions)
    assert archives(run.attempt(2).events) == 2
    now[0] += 60.0
    poll(regions)
    assert archives(run.attempt(2).events) == 3


def test_the_output_of_a_session_is_left_as_it_is(run: RunFolder) -> None:
    write_json(run.session, Session(1, 0.0, 1e9, 60.0).to_dict())
    now = [1000.0]
    regions = OldRegions(run, lambda: now[0])
    now[0] += 60.0
    poll(regions)
    assert archives(run.journal) == 0

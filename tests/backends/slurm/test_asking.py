"""How a cluster is asked beside what is read from it, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from support.runs.running_run import run_async

from trainer_runtime.host.slurm.queue import CACHE
from trainmaster.backends.follower import Followed, News
from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.slurm.backend import JobsFollower, SlurmBackend
from trainmaster.backends.slurm.chain import is_end_awaited, is_end_due
from trainmaster.backends.slurm.run_status import SlurmSessions
from trainmaster.errors.errors import HostError
from trainmaster.store.control.slurm import Asked, JobLine, JobNote, Questions, SlurmRecords
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.workspace import Workspace

RUN = "small-abc234"
_REFUSES = """\
#!/bin/sh
echo >> "${0%/*}/asked"
printf 'sbatch: error: \\033[31mQOSMaxSubmitJobPerUserLimit\\n' >&2
exit 1
"""


@pytest.fixture
def records(workspace: Workspace) -> SlurmRecords:
    return workspace.control.slurm


@pytest.fixture
def backend(records: SlurmRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmBackend:
    """Of a cluster that lists no jobs, and refuses all."""
    programs, folder = tmp_path / "bin", tmp_path / "runs" / RUN
    programs.mkdir()
    for name, text in {"squeue": "#!/bin/sh\n", "sbatch": _REFUSES}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    folder.mkdir(parents=True)
    (folder / "trainer_runtime").symlink_to(Path(__file__).parents[3] / "trainer_runtime")
    (folder / "desired.json").write_text(json.dumps({"state": "running", "generation": 1}))
    host = LocalHost("cluster", tmp_path)
    return SlurmBackend(host, HostRecord("cluster", "login"), records, lambda _: str(folder))


def test_a_refused_submission_is_kept_with_a_growing_pause(
    backend: SlurmBackend, records: SlurmRecords
) -> None:
    again = []
    records.put(RUN, JobNote("running", t=1.0, number=7))  # before it ended
    for _ in range(2):
        with pytest.raises(HostError, match="QOSMaxSubmitJobPerUserLimit") as refused:
            run_async(lambda: backend.start(RUN))
        assert refused.value.code == "JOB_REFUSED"
        kept = records.refusal(RUN)
        assert kept is not None
        again.append(kept.again_t)
    assert kept.count == 2
    assert (note := records.job(RUN)) and (note.state, note.number) == ("absent", 7)
    assert again[1] - again[0] > 29.0

    def standing(now: float) -> SlurmSessions:
        return SlurmSessions(None, None, None, now, refused=lambda: kept)

    assert standing(kept.again_t - 1.0).reason == "slurm_refused"
    assert standing(kept.again_t - 1.0).detail == "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    assert not standing(kept.again_t - 1.0).wants_start
    assert standing(kept.again_t + 1.0).wants_start


def test_reading_leaves_nothing_on_the_login_node(backend: SlurmBackend, tmp_path: Path) -> None:
    run_async(lambda: backend.read_jobs([RUN]))
    assert not (tmp_path / CACHE).exists()
    run_async(lambda: backend.supervised([RUN]))
    assert (tmp_path / CACHE).exists()


def test_how_the_last_job_ended_is_found_after_the_run(
    backend: SlurmBackend, records: SlurmRecords, tmp_path: Path
) -> None:
    sacct = tmp_path / "bin" / "sacct"
    sacct.write_text(f"#!/bin/sh\necho '7|{RUN}|COMPLETED|1000|2000|0:0'\n")
    sacct.chmod(0o700)
    records.put(RUN, JobNote("running", t=1.0, number=7, end_t=9e9))  # as it was last listed
    records.put_jobs({RUN: [JobLine(7)]})
    run_async(lambda: backend.learn_ends([RUN]))
    assert records.asked("cluster") is None  # the others are asked for as before
    [line] = records.jobs(RUN)
    assert line.settled and (line.word, line.begin_t, line.end_t) == ("COMPLETED", 1000.0, 2000.0)
    sessions = SlurmSessions(records.job(RUN), None, None, 3.0, chain=lambda: records.jobs(RUN))
    newest = sessions.newest
    assert newest and (newest.number, newest.outcome, newest.ends_t) == (7, "over", None)


def test_a_run_is_asked_for_once_it_is_heard_of_while_its_job_waits(
    backend: SlurmBackend, records: SlurmRecords
) -> None:
    records.put(RUN, JobNote("waiting", t=1.0, number=7))
    for asked_s, begun in ((1.0, False), (6.0, True)):
        records.note_asked("cluster", Asked(time.time() - asked_s))
        assert backend.has_begun([RUN]) is begun and not backend.is_due()
    records.put(RUN, JobNote("running", t=2.0, number=7))
    assert not backend.has_begun([RUN])


def test_an_ended_run_is_asked_for_a_few_times_with_growing_pauses() -> None:
    lines, asked, now, times = [JobLine(7)], None, 0.0, []
    while is_end_awaited(lines, asked):
        if is_end_due(lines, asked, now):
            asked = Questions(1 if asked is None else asked.count + 1, now)
            times.append(now)
        now += 4.0
    assert times == [0.0, 4.0, 12.0, 28.0, 60.0, 124.0, 252.0, 508.0]
    assert not is_end_awaited([JobLine(7, "COMPLETED", settled=True)], None)


class _Silent:
    """A controller that gives no answer."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []
        self.silence: list[float] = []

    def is_due(self) -> bool:
        return True

    def has_begun(self, run_ids: Iterable[str]) -> bool:
        return False

    def is_silent(self) -> bool:
        return False

    async def read_jobs(self, run_ids: Sequence[str]) -> None:
        self.asked.append(run_ids)
        await asyncio.Event().wait()

    def note_silence(self, since_s: float) -> None:
        self.silence.append(since_s)


class _Files:
    async def copy_new(self, placements: Mapping[str, Followed]) -> News:
        return News(changed={run_id: {"supervisor.jsonl"} for run_id in placements})


def test_files_are_read_while_the_controller_gives_no_answer() -> None:
    silent = _Silent()

    async def follow() -> None:
        follower = JobsFollower(silent, _Files())
        for _ in range(3):
            news = await follower.copy_new({RUN: None})  # type: ignore[dict-item]
            assert news.changed == {RUN: {"supervisor.jsonl"}}
            await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await follower.settle()

    run_async(follow)
    assert silent.asked == [[RUN]]
    assert len(silent.silence) == 1

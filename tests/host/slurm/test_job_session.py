"""How Slurm's signals end the session of a job, and how long a save may take then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.host.scripted_processes import CONFIG
from support.runs.running_run import wait_until

from trainer_runtime.core.lease.session import Session
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.lease.deadlines import read_session

REPOSITORY = Path(__file__).parents[3]
LIMIT_S, WARNED_S, MARGIN_S = 3600.0, 120.0, 60.0
JOB = {"limit_minutes": 60, "margin_s": MARGIN_S, "save_s": 50.0, "signal_s": WARNED_S}
# Whole seconds, and what a busy machine takes to begin; less than any two ends are apart.
_MOMENTS_S = 10.0
# Signals itself as it is about to rename its first session.
STRUCK = """\
import os, signal, sys
struck = []
def strike(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("session.json") and not struck:
        struck.append(os.kill(os.getpid(), signal.SIGTERM))
sys.addaudithook(strike)
"""
SESSION = """\
import sys
from pathlib import Path
from trainer_runtime.host.slurm.session import run_session
sys.exit(run_session(Path(sys.argv[1])))
"""
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "runs" / "small-abc234")
    run.root.mkdir(parents=True)
    write_json(run.config, {**CONFIG, "run_id": run.root.name, "slurm": JOB})
    return run


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """What `squeue` prints of the job, and `scontrol` of the cluster: a minute of KillWait."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("squeue", "scontrol"):
        (programs / name).write_text(f'#!/bin/sh\ncat "${{0%/*}}/{name}.printed"\n')
        (programs / name).chmod(0o700)
    (programs / "scontrol.printed").write_text("JobFile = /x\nKillWait                = 60 sec\n")
    return programs / "squeue.printed"


@pytest.fixture
def start(run: RunFolder, slurm: Path) -> Iterator[Start]:
    """Starts the run's job, which ends with the test."""
    started = []

    def start(*, first: str = "") -> subprocess.Popen[bytes]:
        path = f"{slurm.parent}:/usr/bin:/bin"
        job = subprocess.Popen(
            [sys.executable, "-c", first + SESSION, str(run.root)],
            cwd=REPOSITORY,
            env={**os.environ, "PATH": path, "SLURM_JOB_ID": "7"},
        )
        started.append(job)
        return job

    yield start
    for job in started:
        job.kill()
        job.wait()


def begun(run: RunFolder, slurm: Path, start: Start) -> tuple[subprocess.Popen[bytes], float]:
    """A job with an hour, and when it began."""
    now = time.time()
    slurm.write_text(f"RUNNING|{now + LIMIT_S:.0f}\n")
    job = start()
    wait_until(lambda: read_session(run), "a session")
    wait_until(run.supervisor_lock.exists, "a supervisor")
    return job, now


def ended(run: RunFolder, by: float) -> Session | None:
    """The session, once it ends about then."""
    session = read_session(run)
    return session if session is not None and abs(session.end_t - by) < _MOMENTS_S else None


def _over(session: Session | None) -> Session | None:
    return session if session is not None and session.over_t(0.0) <= time.time() else None


def test_a_job_has_what_its_first_save_may_take_before_the_limit(
    run: RunFolder, slurm: Path, start: Start
) -> None:
    _, now = begun(run, slurm, start)
    session = wait_until(partial(ended, run, now + LIMIT_S), "Slurm's end")
    assert session.end_t - session.over_t(0.0) == MARGIN_S + 2 * 50.0
    assert session.end_t - session.kill_t == 5.0
    assert (read_json(run.session) or {})["job_id"] == 7


@pytest.mark.parametrize(
    ("printed", "left_s"),
    [
        ("RUNNING|{soon}", 600.0),  # preempted, with ten minutes of grace
        ("COMPLETING|{now}", 60.0),  # cancelled: KillWait
        ("", 35.0),  # nobody can say
    ],
)
def test_a_save_that_slurm_asks_for_has_as_long_as_slurm_gives(
    run: RunFolder, slurm: Path, start: Start, printed: str, left_s: float
) -> None:
    job, _ = begun(run, slurm, start)
    now = time.time()
    slurm.write_text(printed.format(now=int(now), soon=int(now + 600.0)) + "\n")
    job.send_signal(signal.SIGTERM)
    session = wait_until(partial(ended, run, now + left_s), "the end that Slurm says")
    assert session.over_t(0.0) <= time.time()
    assert session.end_t - session.kill_t == 5.0


def test_a_person_who_asks_for_a_save_does_not_wait_for_the_limit(
    run: RunFolder, slurm: Path, start: Start
) -> None:
    job, _ = begun(run, slurm, start)
    now = time.time()
    slurm.write_text(f"RUNNING|{now + 86400:.0f}\n")
    job.send_signal(signal.SIGTERM)
    an_hour = partial(ended, run, now + 3600.0)
    wait_until(lambda: _over(an_hour()), "a session that is over within an hour")


@pytest.mark.parametrize(("printed", "left_s"), [("RUNNING|{soon}", 600.0), ("", WARNED_S)])
def test_the_warning_of_a_time_limit_corrects_the_end_and_ends_nothing_by_itself(
    run: RunFolder, slurm: Path, start: Start, printed: str, left_s: float
) -> None:
    job, _ = begun(run, slurm, start)
    now = time.time()
    slurm.write_text(printed.format(soon=int(now + 600.0)) + "\n")
    job.send_signal(signal.SIGUSR1)
    session = wait_until(partial(ended, run, now + left_s), "the new end")
    measured_s = 1.0
    assert session.end_t - session.over_t(measured_s) == MARGIN_S + 2 * measured_s


def test_a_signal_while_the_session_is_written_ends_it_and_not_the_job(
    run: RunFolder, slurm: Path, start: Start
) -> None:
    now = time.time()
    slurm.write_text(f"RUNNING|{now + 600.0:.0f}\n")
    job = start(first=STRUCK)

    def is_over() -> Session | None:
        assert job.poll() is None
        return _over(read_session(run))

    wait_until(is_over, "a session that is over")
    wait_until(run.supervisor_lock.exists, "a supervisor")
    assert (read_json(run.session) or {})["job_id"] == 7
    # What is being written again now has a file of its own for a moment.
    wait_until(lambda: not list(run.root.glob(".session.json.*")), "no half of a session")

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.alerts.webhook_receiver import receiving
from support.backends.tcp_proxy import free_port
from support.runs.operator import Operator
from support.runs.running_run import run_async
from support.session.leftovers import (
    SESSION_VARIABLE,
    end_processes_of,
    end_supervisors_of,
    left_by_session,
)

_SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]


@pytest.fixture
def other_session() -> Iterator[subprocess.Popen[bytes]]:
    """A process that another session of tests has started, in no folder of this one's."""
    process = subprocess.Popen(_SLEEP, cwd="/", env={SESSION_VARIABLE: "other"})
    yield process
    process.kill()
    process.wait()


def test_what_works_in_a_folder_is_ended_and_nothing_else(
    tmp_path: Path, other_session: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "mine").mkdir()
    mine = [
        subprocess.Popen(_SLEEP, cwd=tmp_path / "mine"),
        subprocess.Popen([*_SLEEP, f"{tmp_path}/mine/file"]),
        subprocess.Popen(_SLEEP, env={**os.environ, "HOME": f"{tmp_path}/mine"}),
    ]
    end_processes_of(tmp_path / "mine")
    assert [process.wait(60) for process in mine] == [-9] * 3
    assert other_session.poll() is None


def test_what_a_session_left_is_named_and_ended(
    tmp_path: Path, other_session: subprocess.Popen[bytes]
) -> None:
    (line,) = left_by_session("other", tmp_path, patience_s=0.2)
    assert line.startswith(f"{other_session.pid} in /: ")
    assert "time.sleep(1000)" in line
    assert other_session.wait(60) == -9
    assert left_by_session("other", tmp_path, patience_s=0.2) == []


def test_a_supervisor_that_still_has_a_message_to_deliver_is_ended(operator: Operator) -> None:
    with receiving(port=free_port("127.0.0.1")) as gone:
        operator.hook(gone, "box")
    run = run_async(
        lambda: operator.launch(alerts="[{name: done, when: state completed, to: ops}]")
    )
    assert run_async(lambda: operator.ended(run)) == "completed"
    [thread] = [one for one in threading.enumerate() if one.name == f"supervisor-{run}"]
    end_supervisors_of(operator.workspace.home.root / "debug")
    assert not thread.is_alive()

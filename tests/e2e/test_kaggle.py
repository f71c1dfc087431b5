"""A run at Kaggle over as many sessions as it needs: the real client, against our stand-in that
runs what is pushed for real."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.kaggle.sessions import Session
from support.kaggle.site import KaggleSite
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    small_spec,
    standing_after,
    standing_files,
    wait_until,
)

from trainer_runtime.core.protocol.followed_files import is_appended, is_replaced
from trainer_runtime.host.files.layout import RunFolder
from trainmaster.store.control import Control

STEPS = 200
SESSION_S, MARGIN_S = 300.0, 60.0


@pytest.fixture
def at_kaggle(home: Path, kaggle_site: KaggleSite) -> Iterator[CommandLine]:
    """`trainmaster`, with an account at the stand-in."""
    home.mkdir()
    lengths = f"session_hours: {SESSION_S / 3600}, margin_minutes: {MARGIN_S / 60}"
    (home / "settings.yaml").write_text(f"kaggle: {{{lengths}}}\n")
    command = CommandLine(home, "kaggle")
    command.environment |= kaggle_site.environment
    yield command
    control = Control(home / "control.db")
    shutil.rmtree(f"/tmp/trainmaster-{control.instances.home_id()}", ignore_errors=True)
    control.close()


def spec_file(folder: Path, name: str = "spec", **changes: str) -> str:
    text = small_spec(
        folder,
        steps=str(STEPS),
        precision="fp32",
        environment=f"{{python: {sys.executable}}}",
        compute="{gpus: 0, threads: 1}",
        **changes,
    )
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return str(path)


def end_while_training(session: Session) -> None:
    """Let a session be over behind its trainer's first step."""
    events = RunFolder(session.working / "run").attempt(1).events
    wait_until(lambda: b'"step":1,' in read(events) or session.is_over, "a step", LONGEST_S)
    assert not session.is_over, (session.message, session.events[-5:])
    session.interrupt()
    session.join(LONGEST_S)
    assert session.state == "COMPLETE", (session.message, session.events[-5:])


def read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def followed(root: Path) -> dict[str, bytes]:
    """The followed files that have anything in them."""
    names = (path.relative_to(root).as_posix() for path in standing_files(root))
    wanted = [name for name in names if is_appended(name) or is_replaced(name)]
    return {name: data for name in wanted if (data := (root / name).read_bytes())}


def losses(command: CommandLine, *runs: str) -> list[dict[str, Any]]:
    reported = command("metrics", *runs, "--key", "loss", "--key", "val_loss", "--all")["runs"]
    return [
        {key: (one["steps"], one["values"]) for key, one in reported[run].items()} for run in runs
    ]


@pytest.mark.engine
def test_a_run_continues_over_sessions_as_if_it_were_one(
    at_kaggle: CommandLine, kaggle_site: KaggleSite, tmp_path: Path
) -> None:
    env = begin_with(tmp_path / "standing", standing_after(100, 1))
    standing, spec = spec_file(tmp_path, "standing", env=env), spec_file(tmp_path)
    kaggle_site.fail("SaveKernel", "lose")  # the first push comes through, and nobody hears of it
    launched = at_kaggle("launch", standing, "--host", "kaggle")
    run = launched["run_id"]
    assert (launched["state"], launched["reason"]) == ("queued", "data_set")
    there = at_kaggle("launch", spec)["run_id"]  # the same, where nothing interrupts it
    kernels, ref = kaggle_site.kernels, f"somebody/tm-{run}"
    wait_until(lambda: ref in kernels and kernels[ref].versions, "a push", LONGEST_S)
    versions = kernels[ref].versions
    mirror = at_kaggle.home / "mirror" / run / "p1"

    end_while_training(versions[0])
    done = at_kaggle("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert (done["event"], done["step"]) == ("completed", STEPS)
    # Its log reports of the training's end before the session has come to its own.
    wait_until(lambda: at_kaggle("status", run)["session"].get("outcome"), "the session's end")
    status = at_kaggle("status", run, "--detail")
    assert status["session"] == {"number": 2, "outcome": "over"}
    before, last = status["attempts"]
    assert (before["reason"], before["last_step"]) == ("session_over", last["started_at_step"])
    assert before["last_step"] < STEPS
    assert [version.state for version in versions] == ["COMPLETE", "COMPLETE"]
    assert followed(mirror) == followed(versions[-1].working / "run")

    at_kaggle("wait", there, "--until", "completed", "--timeout", str(LONGEST_S))
    ours, whole = losses(at_kaggle, run, there)
    assert ours == whole
    assert len(ours["loss"][0]) == STEPS
    assert at_kaggle("fetch", run, "final", str(tmp_path / "fetched"))["files"] > 0

    kaggle_site.fail("SaveKernel", "403")  # its data is there: the launch itself hears of it
    refused = at_kaggle("launch", spec, "--host", "kaggle", code=1)["error"]
    assert refused["code"] == "KAGGLE_REFUSED"
    assert [path.name for path in (at_kaggle.home / "kaggle").iterdir()] == [run]


def pusher(run: str) -> int | None:
    """The process that was left behind to send the run's data, and then pushes."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"transfer" in words and run.encode() in words:
                return int(folder.name)
    return None


@pytest.mark.long
def test_an_operator_that_is_killed_while_it_pushes_leaves_nobody_pushing_twice(
    at_kaggle: CommandLine, kaggle_site: KaggleSite, tmp_path: Path
) -> None:
    kaggle_site.fail("SaveKernel", "hang")
    run = at_kaggle("launch", spec_file(tmp_path), "--host", "kaggle")["run_id"]
    wait_until(lambda: kaggle_site.asked["SaveKernel"], "a push", LONGEST_S)
    pid = pusher(run)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    at_kaggle("tick")
    status = at_kaggle("status", run)
    assert (status["state"], status["reason"]) == ("queued", "kaggle_queue")
    assert kaggle_site.asked["SaveKernel"] == 1  # it may still come through

    refused = at_kaggle("stop", run, code=1)["error"]
    assert refused["code"] == "UNSUPPORTED" and "--after-session" in refused["fix"]
    assert at_kaggle("stop", run, "--after-session")["state"] == "stopping"


def test_without_a_key_nothing_is_recorded(at_kaggle: CommandLine, tmp_path: Path) -> None:
    del at_kaggle.environment["KAGGLE_API_TOKEN"]
    error = at_kaggle("launch", spec_file(tmp_path), "--host", "kaggle", code=1)["error"]
    assert error["code"] == "KAGGLE_KEY_MISSING"
    assert at_kaggle("runs")["runs"] == []

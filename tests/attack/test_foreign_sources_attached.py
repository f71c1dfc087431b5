"""Logs without end that are attached to by the command line, with a real supervisor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.attack.small_disk import allocated_bytes
from support.host.attached_folder import limit
from support.host.foreign_trainings import lines, writing
from support.runs.running_run import CommandLine, wait_until

pytestmark = [pytest.mark.attack, pytest.mark.slow]

MIB = 1 << 20


def codes(command: CommandLine, run: str) -> list[str]:
    status: dict[str, Any] = command("status", run)
    return [finding["code"] for finding in status["findings"]]


def test_a_sparse_log_of_2_tib_costs_its_host_and_the_client_nothing(
    command: CommandLine, tmp_path: Path
) -> None:
    log = tmp_path / "sparse.log"
    log.write_text(lines(0, 3))
    with log.open("ab") as file:
        file.truncate(2 << 40)
    with writing(log) as training:
        run = command("attach", "--log", str(log))["run_id"]
        training.say("\n" + lines(5, 8))
        command("wait", run, "--until", "step:7", "--timeout", "120")
        assert allocated_bytes(command.folder(run).attempt(1).root) < MIB
        assert allocated_bytes(command.home / "mirror") < MIB
        assert codes(command, run) == []
    ended = command("wait", run, "--until", "end", "--timeout", "120")
    assert ended["step"] == 7


def test_beyond_its_bound_a_log_is_a_finding_and_is_followed_on_once_that_is_raised(
    command: CommandLine, tmp_path: Path
) -> None:
    limit(command.root, source=MIB)
    log = tmp_path / "train.log"
    log.write_text(lines(0, 1000))
    with writing(log) as training:
        run = command("attach", "--log", str(log))["run_id"]
        command("wait", run, "--until", "step:999", "--timeout", "120")
        training.say("noise without numbers\n" * 60_000)
        training.say(lines(1000, 1005))
        wait_until(lambda: codes(command, run) == ["source_not_copied"], "the finding")
        status = command("status", run)
        assert (status["state"], status["step"]) == ("running", 999)
        copy = command.folder(run).attempt(1).train_log
        assert copy.stat().st_size <= MIB
        (finding,) = command("diagnose", run)["findings"]
        assert "the host copies 0.0009766 GiB of one log" in finding["evidence"]
        limit(command.root, source=64 * MIB)
        command("wait", run, "--until", "step:1004", "--timeout", "120")
        wait_until(lambda: codes(command, run) == [], "the end of the finding")
        assert copy.read_bytes() == log.read_bytes()

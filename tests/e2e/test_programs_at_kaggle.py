"""A program in a Kaggle session, as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host.foreign_program import program_spec, with_data, write_program
from support.kaggle.site import KaggleSite
from support.runs.running_run import LONGEST_S, CommandLine, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.engine]


def test_a_program_is_sent_to_a_session_and_its_saves_come_back(
    home: Path, kaggle_site: KaggleSite, tmp_path: Path
) -> None:
    command = CommandLine(home, "kaggle")
    command.environment |= kaggle_site.environment
    program = write_program(tmp_path / "program")
    words = ("--reports", "--data", "{data}")
    given = with_data(program_spec(program, *words, steps=12, host="kaggle"), tmp_path)
    run = command("launch", given)["run_id"]
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    status = command("status", run)
    assert (status["state"], status["step"]) == ("completed", 12)
    wait_until(
        lambda: command("tick") and command("status", run)["session"].get("outcome"),
        "the session's end",
    )
    fetched = tmp_path / "fetched"
    command("fetch", run, "latest", str(fetched))
    assert [path.name for path in fetched.rglob("ckpt.pt")] == ["ckpt.pt"]

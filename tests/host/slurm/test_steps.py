"""Steps of a job that are begun again whenever they end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.runs.running_run import kill, wait_until

from trainer_runtime.host.slurm.steps import KeptSteps, Step

# In place of Slurm's: notes its process, and runs on.
SRUN = """\
#!{shell}
echo $$ >>{begun}
exec sleep 600
"""


def test_a_step_that_could_not_be_begun_is_begun_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs, begun, given = (tmp_path / name for name in ("bin", "begun", "given"))
    programs.mkdir()
    given.write_text("{}")
    for name in ("sh", "setsid", "sleep"):
        programs.joinpath(name).symlink_to(str(shutil.which(name)))
    srun = programs / "srun"
    srun.write_text(SRUN.format(shell=shutil.which("sh"), begun=begun))
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))

    def pids() -> list[int]:
        return [int(word) for word in begun.read_text().split()] if begun.exists() else []

    steps = KeptSteps([Step("node2", tmp_path, 1, ("session",))], {"node2": given})
    said: list[str] = []
    try:
        wait_until(pids, "the step")
        programs.joinpath("sh").rename(tmp_path / "sh")  # no process can be started so
        kill(pids()[0])
        wait_until(lambda: said.append(capsys.readouterr().err) or "".join(said), "a line about it")
        (tmp_path / "sh").rename(programs / "sh")
        wait_until(lambda: len(pids()) == 2, "the step again")
    finally:
        steps.close()
    wait_until(lambda: not os.path.exists(f"/proc/{pids()[1]}"), "its end")
    expected = "session: the step on node2 can't be begun, and is tried again: [Errno 2]"
    assert "".join(said).startswith(expected)

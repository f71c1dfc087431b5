"""Secrets on the host: given to the trainer, masked in all output, removed at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.core.journal_records import metric, started
from support.host.scripted_processes import Box, Life

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.secret_file import (
    SecretsMissingError,
    remove_secrets,
    secret_environment,
    secret_values,
)
from trainer_runtime.host.supervise.attempts import last_words

REPOSITORY = Path(__file__).parents[3]
TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
STOPPABLE = Life((started(), metric(1), metric(40)), end=None)


def give(run: RunFolder, generation: int = 1, **values: str) -> None:
    run.secrets.write_text(json.dumps({"v": 1, "generation": generation, "values": values}))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "runs" / "small-abc234")
    run.attempt(1).root.mkdir(parents=True)
    return run


def test_only_what_the_configuration_names_is_given(run: RunFolder) -> None:
    give(run, HF_TOKEN=TOKEN, OTHER="abcd-1234")
    assert secret_environment(run, RunConfig.parse({"secrets": ["HF_TOKEN"]})) == {
        "HF_TOKEN": TOKEN
    }
    assert secret_environment(run, RunConfig.parse({})) == {}
    with pytest.raises(SecretsMissingError, match="WANDB_API_KEY"):
        secret_environment(run, RunConfig.parse({"secrets": ["HF_TOKEN", "WANDB_API_KEY"]}))


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"values": null}', '{"v": 1}'])
def test_a_file_that_is_missing_or_torn_holds_nothing(run: RunFolder, text: str | None) -> None:
    if text is not None:
        run.secrets.write_text(text)
    assert secret_values(run) == {}


def test_they_are_removed_unless_they_came_for_a_newer_request(run: RunFolder) -> None:
    give(run, 3, HF_TOKEN=TOKEN)
    remove_secrets(run, 2)
    assert secret_values(run) == {"HF_TOKEN": TOKEN}
    remove_secrets(run, 3)
    assert not run.secrets.exists()
    remove_secrets(run, 3)
    run.secrets.write_text("torn")
    remove_secrets(run, 0)
    assert not run.secrets.exists()


def hold(run: RunFolder, config: dict[str, object], **variables: str) -> tuple[int | None, str]:
    """The exit code and the log of a trainer that prints its token."""
    (run.root / "train.py").write_text("import os; print('token', os.environ.get('HF_TOKEN'))")
    run.attempt(1).config.write_text(json.dumps(config))
    command = [sys.executable, "-m", "trainer_runtime", "hold", str(run.root), "1"]
    environment = {**os.environ, **variables}
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, timeout=60)
    outcome = read_json(run.attempt(1).exit) or {}
    return outcome.get("code"), run.attempt(1).train_log.read_text()


def test_the_trainer_has_it_in_its_environment_before_anything_else_of_that_name(
    run: RunFolder,
) -> None:
    give(run, HF_TOKEN=TOKEN)
    config = {"secrets": ["HF_TOKEN"], "env": {"HF_TOKEN": "of env"}}
    assert hold(run, config, HF_TOKEN="of the host") == (0, f"token {TOKEN}\n")


def test_a_trainer_is_not_started_without_what_it_was_to_be_given(run: RunFolder) -> None:
    code, log = hold(run, {"secrets": ["HF_TOKEN"]})
    assert code == 77
    assert "HF_TOKEN" in log and "resume" in log and "token None" not in log


@pytest.mark.parametrize("padding", [0, 1, 1980, 1999, 2000, 2001, 2030, 5000])
def test_last_words_are_masked_wherever_their_beginning_is_cut(
    run: RunFolder, padding: int
) -> None:
    give(run, HF_TOKEN=TOKEN)
    log = f"first\n{TOKEN} {'x' * padding}"
    run.attempt(1).train_log.write_text(log)
    words = last_words(run, 1, prepared=True)
    assert words is not None
    assert all(TOKEN[begin : begin + 6] not in words for begin in range(len(TOKEN) - 6))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    box = Box(tmp_path / "runs" / "small-abc234", {1: STOPPABLE, 2: STOPPABLE})
    box.set_up()
    give(box.run, HF_TOKEN=TOKEN)
    return box


def test_they_stay_while_the_run_may_start_again_and_go_with_its_end(box: Box) -> None:
    crash = Life((started(), metric(1), metric(40)), Exit(None, 9))
    box.lives = {1: crash, 2: STOPPABLE}
    supervisor = box.supervisor()
    box.tick(supervisor, "restart_planned")
    assert box.run.secrets.exists()
    box.tick(supervisor, "running")
    box.ask("stopped", 2)
    assert box.to_the_end(supervisor).state is PlacementState.STOPPED
    assert not box.run.secrets.exists()


def test_a_resume_delivers_them_before_the_supervisor_has_closed(box: Box) -> None:
    supervisor = box.supervisor()
    box.tick(supervisor, "running")
    box.ask("stopped", 2)
    box.tick(supervisor, "stopped")
    give(box.run, 3, HF_TOKEN=f"{TOKEN}-new")
    assert supervisor.tick()
    assert secret_values(box.run) == {"HF_TOKEN": f"{TOKEN}-new"}


def test_the_output_of_a_failed_preparation_is_masked_everywhere(box: Box) -> None:
    box.lives = {1: Life(prepared=77, setup_log=f"no access with {TOKEN}\n")}
    record = box.to_the_end()
    assert record.attempts[0].last_words == f"no access with {'*' * len(TOKEN)}"
    for path in (box.run.journal, box.run.state, box.run.status_page):
        assert TOKEN not in path.read_text()

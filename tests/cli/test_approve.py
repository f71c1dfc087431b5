"""`trainmaster approve`: lists, shows and asks, and takes no word from a pipe."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.host.pty import Terminal
from support.runs.running_run import CommandLine

from trainmaster.cli import run
from trainmaster.cli.confirm import asking
from trainmaster.errors.confirmation import Quote
from trainmaster.errors.errors import SpendError
from trainmaster.store.control.approvals import Approval
from trainmaster.sync.workspace import Workspace

_QUOTE = Quote("provision", "offer a", "Rent runpod:a for 2 h, 4.00 USD at most.", 4.0)


@pytest.fixture
def waiting(workspace: Workspace) -> Approval:
    return workspace.control.approvals.quote(_QUOTE, time.time())


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run([*arguments, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, answer


def test_without_an_id_it_lists_what_waits(
    waiting: Approval, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = reported(capsys, "approve")
    assert code == 0
    [row] = answer["waiting"]
    assert (row["id"], row["action"], row["usd"]) == (waiting.id, "provision", 4.0)
    assert run(["approve"]) == 0
    shown = capsys.readouterr().out
    assert waiting.id in shown and _QUOTE.text in shown and "{" not in shown


def test_with_nobody_to_ask_it_takes_yes_alone(
    waiting: Approval, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, refused = reported(capsys, "approve", waiting.id)
    assert (code, refused["error"]["code"]) == (1, "CONFIRMATION_REQUIRED")
    assert f" approve {waiting.id}`" in refused["error"]["fix"]
    assert workspace.control.approvals.take(_QUOTE, time.time()) is None
    code, answer = reported(capsys, "approve", waiting.id, "--yes")
    assert (code, answer["approved"]) == (0, True)
    assert workspace.control.approvals.take(_QUOTE, time.time()) is not None


def test_an_unknown_id_is_reported(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, refused = reported(capsys, "approve", "q-nosuch", "--yes")
    assert (code, refused["error"]["code"]) == (1, "APPROVAL_UNKNOWN")


@pytest.mark.parametrize(("typed", "code", "approved"), [("y\n", 0, True), ("\n", 1, False)])
def test_at_a_terminal_somebody_reads_it_and_answers(
    waiting: Approval,
    workspace: Workspace,
    command: CommandLine,
    typed: str,
    code: int,
    approved: bool,
) -> None:
    with Terminal(command, "approve", waiting.id) as terminal:
        terminal.wait_for("Approve?")
        assert _QUOTE.text in terminal.shown
        terminal.type(typed)
        assert terminal.end() == code
    assert (workspace.control.approvals.take(_QUOTE, time.time()) is not None) is approved


def test_a_command_takes_yes_or_a_person_for_an_answer() -> None:
    assert anyio.run(asking(True, True), _QUOTE) == "--yes"
    with pytest.raises(SpendError, match="There is nobody to ask") as refused:
        anyio.run(asking(False, False), _QUOTE)
    assert refused.value.code == "CONFIRMATION_REQUIRED" and "--yes" in refused.value.fix

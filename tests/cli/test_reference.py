"""docs/cli.md and the help name all that there is."""

from __future__ import annotations

import os
from pathlib import Path

from scripts.pages.commands import every_command, reference
from trainmaster.errors.error_codes import CODES
from trainmaster.runs.events.event_watch import EVENTS

_DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
_COMMANDS = every_command()


def test_the_help_of_wait_names_every_event() -> None:
    until = next(item for item in _COMMANDS["wait"].params if "--until" in item.opts)
    assert [event for event in (*EVENTS, "step:N") if event not in until.help] == []


def test_the_reference_is_up_to_date() -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        _DOCS.write_text(reference())
    assert _DOCS.read_text() == reference()


def test_the_reference_mentions_every_command_option_and_error_code() -> None:
    page = _DOCS.read_text()
    options = [option for item in _COMMANDS.values() for p in item.params for option in p.opts]
    wanted = [*_COMMANDS, *(option for option in options if option.startswith("-")), *CODES]
    assert [word for word in wanted if word not in page] == []

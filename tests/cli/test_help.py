"""Help that is read in a terminal of 80 columns, examples that run, and completion."""

from __future__ import annotations

import shlex

import pytest
from support.runs.planted_journal import PlantedJournal
from typer.main import get_command

from scripts.pages.commands import every_command
from trainer_runtime import __version__
from trainmaster.cli import run
from trainmaster.cli.command_table import LISTED, SECTIONS, commands_for
from trainmaster.cli.examples import EXAMPLES
from trainmaster.sync.workspace import Workspace


def test_help_lists_every_command_in_its_section_and_cuts_no_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "..." not in shown.replace("[ARGS]...", "")
    assert max(map(len, shown.splitlines())) <= 80
    assert [line[:-1] for line in shown.splitlines() if line[:-1] in SECTIONS] == list(SECTIONS)
    listed = [
        line.split()[0] for line in shown.splitlines() if line[:2] == "  " and line[2:3] > "-"
    ]
    assert all(listed.count(one.word) == (not one.hidden) for one in LISTED)
    assert all(bool(one.section) is not one.hidden for one in LISTED)


def test_version_is_printed_before_anything_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"trainmaster {__version__}\n"


@pytest.mark.parametrize("command", sorted(EXAMPLES))
def test_every_example_is_accepted_and_shown(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = every_command()[command]
    assert run([command, "--help"]) == 0
    shown = capsys.readouterr().out
    for example in EXAMPLES[command]:
        program, word, *arguments = shlex.split(example)
        assert (program, word) == ("trainmaster", command)
        found.make_context(command, arguments).close()
        assert f"    {example}\n" in shown


def completed(
    typed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """What bash would offer for this line."""
    monkeypatch.setenv("_TRAINMASTER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert not ended.value.code
    return capsys.readouterr().out.split()


def test_a_shell_completes_commands_options_and_names_of_runs(
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert completed("trainmaster status g", capsys, monkeypatch) == []
    PlantedJournal(workspace, "gpt")
    PlantedJournal(workspace, "sft")
    assert completed("trainmaster res", capsys, monkeypatch) == ["resume"]
    assert completed("trainmaster status --p", capsys, monkeypatch) == ["--page"]
    assert completed("trainmaster status g", capsys, monkeypatch) == ["gpt"]
    assert sorted(completed("trainmaster watch gpt ", capsys, monkeypatch)) == ["gpt", "sft"]


def test_an_only_command_needs_no_options_of_completion() -> None:
    options = {
        option for item in get_command(commands_for(["status"])).params for option in item.opts
    }
    assert options == {"--home", "--version"}

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.runs.running_run import run_async

from scripts.pages.settings import reference
from trainmaster.cli.doctor.checks import examine
from trainmaster.errors.errors import StateError
from trainmaster.home.paths import Home
from trainmaster.settings.settings import Settings, all_settings, read_settings
from trainmaster.sync.workspace import Workspace

_DOCS = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


@pytest.fixture
def written(tmp_path: Path) -> Home:
    return Home(tmp_path)


def refused(home: Home, text: str) -> StateError:
    home.settings.write_text(text)
    with pytest.raises(StateError) as error:
        read_settings(home)
    assert error.value.code == "SETTINGS_NOT_READABLE"
    assert str(home.settings) in error.value.message
    return error.value


@pytest.mark.parametrize("text", [None, "", "# nothing yet\n", "{}", "secrets: {}"])
def test_what_is_not_said_has_its_default(written: Home, text: str | None) -> None:
    if text is not None:
        written.settings.write_text(text)
    assert read_settings(written) == Settings()
    assert read_settings(written).secrets.allow == []
    assert read_settings(written).download_root(written) == written.root / "downloads"


def test_what_is_said_holds(written: Home) -> None:
    written.settings.write_text("secrets: {allow: [HF_TOKEN, WANDB_API_KEY]}\ndownloads: /data\n")
    settings = read_settings(written)
    assert settings.secrets.allow == ["HF_TOKEN", "WANDB_API_KEY"]
    assert settings.download_root(written) == Path("/data")


def test_a_home_of_ones_own_may_be_written_short(
    written: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    written.settings.write_text("downloads: ~/trainings")
    assert read_settings(written).download_root(written) == Path("/home/someone/trainings")


@pytest.mark.parametrize(
    ("text", "field", "accepted"),
    [
        ("secret: {allow: []}", "secret", "secrets.allow, agent.folders"),
        ("secrets: {alow: [X]}", "secrets.alow", "secrets.allow"),
        ("secrets: {allow: HF_TOKEN}", "secrets.allow", "a list of names"),
        ("secrets: {allow: [1]}", "secrets.allow.0", "a list of names"),
        ("secrets: {allow: [LD_PRELOAD]}", "secrets.allow.0", "a list of names"),
        ("downloads: here", "downloads", "an absolute path"),
        ("downloads: 5", "downloads", "an absolute path"),
        ("- a list", None, "secrets.allow"),
    ],
)
def test_what_may_not_be_said_is_refused_with_what_may(
    written: Home, text: str, field: str | None, accepted: str
) -> None:
    error = refused(written, text)
    assert error.field == field
    assert accepted in error.fix


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "a: *b", "{", "x: !!python/object:os.system"])
def test_what_is_no_plain_yaml_is_refused(written: Home, text: str) -> None:
    refused(written, text)


def test_a_folder_in_place_of_the_file_is_reported(written: Home) -> None:
    written.settings.mkdir()
    with pytest.raises(StateError, match="can't be read"):
        read_settings(written)


def test_the_doctor_reports_where_the_settings_are_and_what_holds(workspace: Workspace) -> None:
    def row() -> tuple[str, str]:
        checks = run_async(lambda: examine(workspace)).checks
        (found,) = [check for check in checks if check.name == "settings"]
        return found.state, found.found

    assert "secrets allowed: none" in row()[1]
    workspace.home.settings.write_text("secrets: {allow: [HF_TOKEN]}")
    state, detail = row()
    assert state == "ok" and str(workspace.home.settings) in detail and "HF_TOKEN" in detail
    workspace.home.settings.write_text("no: 1")
    assert row()[0] == "fail"


def test_the_reference_is_up_to_date_and_mentions_every_setting() -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        _DOCS.write_text(reference())
    assert _DOCS.read_text() == reference()
    paths = [path for path, _ in all_settings()]
    named = {"secrets.allow", "downloads", "destinations", "agent_may_spend_usd", "max_usd_total"}
    assert named <= set(paths)
    assert [path for path in paths if f"## `{path}`" not in reference()] == []

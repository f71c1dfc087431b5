"""Files with secrets, keys and settings, under every name by which they could be asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from trainer_runtime.core.files.corpus import AskedSource
from trainer_runtime.core.files.listing import LeftOut, list_files
from trainer_runtime.core.files.protected import (
    ProtectedError,
    is_protected,
    names_credentials,
    open_unprotected,
)
from trainer_runtime.host.answer.examine_input import list_corpus
from trainer_runtime.host.attach.examine_source import examine_source
from trainer_runtime.host.attach.log_copy import LogCopy
from trainmaster.errors.errors import SpecError, UsageError
from trainmaster.metrics.log_file import log_file, read_text
from trainmaster.plan.spec import load_spec
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.attack

SECRET = "value-of-a-secret"
PROTECTED = (
    "settings.yaml",
    "secrets.env",
    "keys/rented",
    "secrets/run.json",
    "kaggle-secrets/slug",
    "local/runs/one/.secrets.json",
    "local/runs/one/.alerts.json",
)
Disguise = Callable[[Path, Path], Path]


@pytest.fixture
def filled(workspace: Workspace) -> Path:
    """A home with every kind of protected file."""
    for name in PROTECTED:
        path = workspace.home.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"TOKEN={SECRET}\n")
    return workspace.home.root


def _plain(path: Path, _: Path) -> Path:
    return path


def _roundabout(path: Path, _: Path) -> Path:
    return path.parent / ".." / path.parent.name / path.name


def _link(path: Path, folder: Path) -> Path:
    (folder / "train.log").symlink_to(path)
    return folder / "train.log"


def _link_of_folder(path: Path, folder: Path) -> Path:
    (folder / "logs").symlink_to(path.parent)
    return folder / "logs" / path.name


def _hard_link(path: Path, folder: Path) -> Path:
    os.link(path, folder / "train.log")
    return folder / "train.log"


DISGUISES = (_plain, _roundabout, _link, _link_of_folder, _hard_link)


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("name", PROTECTED)
def test_no_name_of_a_protected_file_is_read_as_a_log(
    workspace: Workspace, filled: Path, tmp_path: Path, disguise: Disguise, name: str
) -> None:
    path = disguise(filled / name, tmp_path)
    with pytest.raises(UsageError) as refused:
        log_file(workspace, str(path))
    assert refused.value.code == "LOG_NOT_READABLE"
    answer = examine_source("log", str(path), "start", str(filled))
    assert answer["refused"]["code"] == "LOG_NOT_READABLE"
    assert SECRET not in str(answer)


@pytest.mark.parametrize("disguise", DISGUISES[:-1])
@pytest.mark.parametrize("name", PROTECTED)
def test_no_name_of_a_protected_file_is_read_as_data_or_as_a_spec(
    filled: Path, tmp_path: Path, disguise: Disguise, name: str
) -> None:
    path = disguise(filled / name, tmp_path)
    asked = json.dumps([AskedSource(str(path)).to_dict()])
    [listed] = list_corpus(asked, None, None)["listed"]
    assert listed["files"] == []
    assert "secrets" in listed["problem"]
    with pytest.raises(SpecError, match="holds secrets") as refused:
        load_spec(str(path), [])
    assert SECRET not in str(refused.value)


def test_a_folder_of_data_around_a_home_is_listed_without_its_secrets(filled: Path) -> None:
    (filled.parent / "corpus.txt").write_text("words\n")
    asked = json.dumps([AskedSource(str(filled.parent)).to_dict()])
    [listed] = list_corpus(asked, None, None)["listed"]
    names = {name for name, *_ in listed["files"]}
    assert "corpus.txt" in names
    assert not any(is_protected(filled.parent / name, [filled]) for name in names)


def test_a_log_replaced_by_a_link_to_secrets_is_not_copied(filled: Path, tmp_path: Path) -> None:
    log, copied = tmp_path / "log", filled / "local" / "runs" / "two" / "attempts" / "1"
    copied.mkdir(parents=True)
    log.write_text("step 1 loss 2.0\n")
    arguments = (copied / "train.log", copied / "source.jsonl", [log], 0, lambda: 1.0)
    copy = LogCopy(*arguments, lambda _: None)
    copy.advance()
    log.unlink()
    log.symlink_to(filled / PROTECTED[-2])
    for reader in (copy, LogCopy(*arguments, lambda _: None)):
        for _ in range(3):
            reader.advance()
    assert (copied / "train.log").read_text() == "step 1 loss 2.0\n"


def test_what_was_opened_is_checked_and_not_what_a_path_led_to_before(
    filled: Path, tmp_path: Path
) -> None:
    (tmp_path / "log").symlink_to(filled / "secrets.env")
    with pytest.raises(ProtectedError):
        open_unprotected(tmp_path / "log")
    with pytest.raises(UsageError, match="holds secrets"):
        list(read_text(tmp_path / "log"))


@pytest.mark.parametrize(
    "pattern", [".secrets.json", "*", "**", "[.]secrets.json", ".SECRETS.json"]
)
def test_no_pattern_lists_a_runs_secrets(filled: Path, pattern: str) -> None:
    run = filled / "local" / "runs" / "one"
    os.link(run / ".secrets.json", run / "model.txt")
    (run / "notes.txt").symlink_to(run / ".alerts.json")
    (run / ".SECRETS.json").write_text(SECRET)
    listed = [item for item in list_files(run, pattern) if not isinstance(item, LeftOut)]
    assert listed == []


@pytest.mark.parametrize("name", ["train.log", "settings.yml", "keys.log", "mirror/run/train.log"])
def test_other_files_are_not_protected(filled: Path, tmp_path: Path, name: str) -> None:
    for folder in (filled, tmp_path):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("step 1\n")
        os.link(folder / name, folder / f"{name}.copy")
        assert not is_protected(folder / name, [filled])
    assert not is_protected(tmp_path / "settings.yaml", [filled])


@pytest.mark.parametrize("name", [".env", ".env.local", ".ENV.production", ".env~", ".env-old"])
def test_files_of_variables_count_as_credentials_whatever_their_ending(name: str) -> None:
    assert names_credentials(PurePath("program", name))


@pytest.mark.parametrize("name", [".env.example", ".env.template", ".environment", "env.py"])
def test_templates_of_variables_do_not(name: str) -> None:
    assert not names_credentials(PurePath("program", name))

"""What a session finds in its run's folder: the output before, the journal, the newer bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.core.journal_records import attempt_ended, attempt_starting, lines, state
from support.host.kaggle_kernels import carried
from support.host.scripted_processes import CONFIG

from trainer_runtime.core.kaggle.session_order import CarriedJournal, KernelOrder
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.kaggle.kaggle_session import run_session
from trainer_runtime.host.kaggle.session_folder import lay_down
from trainer_runtime.host.kaggle.session_inputs import SessionError, find_input, link_cache

JOURNAL = lines(
    [
        attempt_starting(1),
        ("attempt_running", {"attempt": 1}),
        attempt_ended(1, "killed", started_at_step=0),
        state("recovering"),
        attempt_starting(2, set={"optimizer.lr": 0.0005}, candidates=[20]),
        ("attempt_running", {"attempt": 2}),
    ]
)
OLDER, WHOLE = b"".join(JOURNAL[:3]), b"".join(JOURNAL)


def an_order(**fields: Any) -> KernelOrder:
    wanted: dict[str, Any] = {"number": 3, "limit_s": 600.0, "margin_s": 60.0, **fields}
    return KernelOrder(run_id="small-abc234", **wanted)


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    """A bundle as it is unpacked."""
    run = tmp_path / "payload/run"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({**CONFIG, "run_id": "small-abc234"}))
    (run / "desired.json").write_text(json.dumps({"state": "running", "generation": 2}))
    (run / "train.sh").write_text("#!/bin/sh\n")
    return run.parent


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The output of a session before."""
    run = tmp_path / "before"
    for name in ("attempts/1", "checkpoints/step-00000020", "checkpoints/.writing-30", "logs"):
        (run / name).mkdir(parents=True)
    (run / "supervisor.jsonl").write_bytes(OLDER)
    (run / "desired.json").write_text("older")
    for name in ("attempts/1/config.json", "checkpoints/step-00000020/manifest.json"):
        (run / name).write_text(json.dumps({"step": 20, "attempt": 1, **CONFIG}))
    for name in (".secrets.json", ".supervisor.lock", "checkpoints/.writing-30/a", "logs/err"):
        (run / name).write_text("not to be copied")
    (run / "link").symlink_to("/etc/hostname")
    return run


def laid_down(payload: Path, order: KernelOrder, before: Path | None) -> RunFolder:
    run = RunFolder(payload.parent / "working/run")
    lay_down(payload, order, run, before)
    return run


def test_the_output_is_copied_but_for_what_belongs_to_its_own_time(
    payload: Path, before: Path
) -> None:
    run = laid_down(payload, an_order(journal_bytes=len(OLDER)), before)
    found = {path.relative_to(run.root).parts[0] for path in run.root.rglob("*")}
    assert found == {
        *("supervisor.jsonl", "desired.json", "config.json", "train.sh"),
        *("attempts", "checkpoints", "trainer_runtime"),
    }
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-00000020"]
    assert json.loads(run.desired.read_bytes())["generation"] == 2
    assert (run.root / "train.sh").stat().st_mode & 0o777 == 0o755
    assert run.run_id == "small-abc234"


@pytest.mark.parametrize("at", [0, len(OLDER) - 5, len(OLDER)])
def test_a_journal_is_carried_on_from_wherever_the_output_ends(
    payload: Path, before: Path, at: int
) -> None:
    order = an_order(carried=carried(WHOLE, at), journal_bytes=len(WHOLE), newest_attempt=3)
    run = laid_down(payload, order, before)
    assert run.journal.read_bytes() == WHOLE


def test_a_run_whose_first_session_was_lost_begins_from_its_journal(payload: Path) -> None:
    order = an_order(carried=carried(WHOLE), journal_bytes=len(WHOLE))
    assert laid_down(payload, order, None).journal.read_bytes() == WHOLE


def test_what_was_changed_for_a_lost_attempt_stays_changed(payload: Path, before: Path) -> None:
    order = an_order(carried=carried(WHOLE), journal_bytes=len(WHOLE), newest_attempt=3)
    run = laid_down(payload, order, before)
    config = json.loads(run.attempt(2).config.read_bytes())
    assert config["optimizer"]["lr"] == 0.0005
    assert json.loads(run.attempt(2).process.read_bytes())["trainer"]["epoch"] == "session 2"
    assert not run.attempt(1).process.exists()
    assert run.attempt(3).root.is_dir()


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({"journal_bytes": len(WHOLE)}, "older than the one that this session was made for"),
        (
            {"carried": carried(WHOLE, len(OLDER) + 1), "journal_bytes": len(WHOLE)},
            "older than the one that this session was made for",
        ),
        ({"carried": CarriedJournal(0, "AAAA")}, "is damaged"),
    ],
)
def test_a_journal_that_does_not_fit_is_refused(
    payload: Path, before: Path, order: dict[str, Any], words: str
) -> None:
    with pytest.raises(SessionError, match=words):
        laid_down(payload, an_order(**order), before)


def test_an_output_that_the_disk_has_no_room_for_is_refused(payload: Path, before: Path) -> None:
    with (before / "checkpoints/step-00000020/model.safetensors").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(SessionError, match=r"4 TiB, and .* Keep fewer checkpoints"):
        laid_down(payload, an_order(journal_bytes=len(OLDER)), before)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({"limit_s": 60.0}, "leaves no time to train"),
        ({"previous": "gone"}, "gone is not mounted below"),
        ({"previous": "empty"}, "holds no run"),
        ({"secrets": "gone"}, "gone is not mounted below"),
        ({"limit_s": "long"}, "can't begin"),
    ],
)
def test_why_a_session_can_t_begin_stands_in_its_log(
    payload: Path,
    order: dict[str, Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAGGLE_WORKING_DIR", str(payload.parent / "working"))
    monkeypatch.setenv("KAGGLE_INPUT_DIR", str(payload.parent / "input"))
    (payload.parent / "input/empty").mkdir(parents=True)
    (payload / "kernel.json").write_text(json.dumps(an_order(**order).to_dict()))
    assert run_session(str(payload)) == 1
    assert words in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("place", ["slug", "notebooks/slug", "datasets/somebody/slug"])
def test_inputs_are_found_wherever_they_are_mounted(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    assert find_input(tmp_path, "slug") == tmp_path / place


def test_a_cache_gets_what_it_lacks_and_keeps_what_it_has(tmp_path: Path) -> None:
    mounted, cache = tmp_path / "mounted", tmp_path / "cache"
    for name in ("data/aaaa/meta.json", "data/bbbb/meta.json", "models/gpt/config.json"):
        (mounted / name).parent.mkdir(parents=True)
        (mounted / name).write_text("mounted")
    (mounted / "complete.json").write_text("all of it")
    (cache / "data/aaaa").mkdir(parents=True)
    assert link_cache(mounted, cache) == ["data/bbbb", "models/gpt"]
    assert not (cache / "data/aaaa/meta.json").exists()
    assert (cache / "data/bbbb/meta.json").read_text() == "mounted"
    assert (cache / "models/gpt/.complete").read_text() == "all of it"

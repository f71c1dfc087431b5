"""When the checkpoint of others is brought over, and what becomes of a failure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.environment.training_python import TrainingPython
from trainer_runtime.host.prepare.preparation import (
    NotAdoptedError,
    NotAdoptedYetError,
    take_over,
)

STEP = 40
PLACE = f"checkpoints/step-{STEP:08d}"


def config(run: Path, **attempt: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "run_id": "small-abc234",
        "adopt": {"step": STEP},
        "environment": {"python": str(run / "python")},
    }
    if attempt:
        document["attempt"] = attempt
    folder = run / "attempts" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(document))
    return document


def beginning(*candidates: int) -> dict[str, Any]:
    return {"number": 1, "resume": {"mode": "step", "candidates": list(candidates)}}


@pytest.fixture
def taker(tmp_path: Path) -> Path:
    """A run's folder whose interpreter notes that it was called, and ends with the given code."""
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\ntouch called\necho the reason\nexit $(cat code)\n")
    interpreter.chmod(0o755)
    (tmp_path / "code").write_text("0")
    return tmp_path


def called(run: Path, document: dict[str, Any]) -> bool:
    python = TrainingPython(str(run / "python"))
    path = run / "attempts/1/config.json"
    take_over(RunConfig.parse(document), path, run, python, lambda _line: None)
    return (run / "called").exists()


def test_a_run_of_our_own_brings_nothing(taker: Path) -> None:
    document = config(taker, **beginning(STEP))
    assert not called(taker, {key: document[key] for key in document if key != "adopt"})


def test_it_is_brought_for_the_attempt_that_begins_with_it(taker: Path) -> None:
    assert not called(taker, config(taker, **beginning(60)))
    assert not called(taker, config(taker, **beginning()))
    assert called(taker, config(taker, **beginning(STEP)))


def test_by_hand_it_is_brought_where_there_is_no_checkpoint_yet(taker: Path) -> None:
    (taker / PLACE).mkdir(parents=True)
    assert not called(taker, config(taker))
    (taker / PLACE).rmdir()
    assert called(taker, config(taker))


def test_what_is_there_is_not_brought_again(taker: Path) -> None:
    (taker / PLACE).mkdir(parents=True)
    (taker / PLACE / "manifest.json").touch()
    document = config(taker, **beginning(STEP))
    (taker / "attempts/1/events.jsonl").touch()
    assert not called(taker, document)
    (taker / "attempts/1/events.jsonl").unlink()
    assert called(taker, document)


@pytest.mark.parametrize(("code", "error"), [("77", NotAdoptedError), ("1", NotAdoptedYetError)])
def test_a_failure_reports_the_reason_and_whether_it_may_pass(
    taker: Path, code: str, error: type[Exception]
) -> None:
    (taker / "code").write_text(code)
    with pytest.raises(error, match="the reason"):
        called(taker, config(taker, **beginning(STEP)))


@pytest.mark.slow
def test_checkpoints_are_read_by_an_environment_of_the_cache_where_nothing_else_has_pytorch(
    tmp_path: Path,
) -> None:
    reader = tmp_path / "cache/venvs/0123/bin/python"
    reader.parent.mkdir(parents=True)
    reader.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    reader.chmod(0o755)
    base = sys._base_executable  # type: ignore[attr-defined]
    command = [base, "-S", "-m", "trainer_runtime", "output", "--cache", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, "--", str(tmp_path)],
        cwd=Path(__file__).parents[3],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert json.loads(done.stdout)["refused"]["code"] == "OUTPUT_UNKNOWN"

"""When a foreign checkpoint is judged: once nobody writes it any more."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from support.runs.running_run import wait_until

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.script import SavesConfig
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.script.saves import Outcome, Saves


def saves_of(run: Path, pattern: str = "out/*.pt", **pauses_s: float) -> Saves:
    """By an interpreter without PyTorch."""
    document: dict[str, Any] = {"name": "program", "framework": "script"}
    config = RunConfig.parse(document)
    given = SavesConfig(pattern, None, None)
    return Saves(RunFolder(run), config, given, run / "code", "false", **pauses_s)


def outcome(saves: Saves) -> Outcome:
    found: list[Outcome] = []

    def is_there() -> bool:
        one = saves.poll(lambda _: 0, {})
        found.extend([one] if one is not None else [])
        return bool(found)

    wait_until(is_there, "an outcome", 60)
    return found[0]


def test_one_that_is_never_finished_is_named_once_and_taken_when_it_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "code" / "out" / "ckpt_20.pt"
    path.parent.mkdir(parents=True)
    saves = saves_of(tmp_path, inspect_every_s=0.0, unsettled_s=0.0)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("state", b"x" * 5000)
        file.fp.flush()  # type: ignore[union-attr]
        named = outcome(saves)
        assert named.problem == "ckpt_20.pt has been written to for half an hour"
        assert all(saves.poll(lambda _: 0, {}) is None for _ in range(50))
    taken = outcome(saves)
    assert taken.problem is None
    assert taken.answer["step"] == 20

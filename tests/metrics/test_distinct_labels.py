"""Files that end alike have labels that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.cli import run


def test_logs_of_two_folders_named_alike_have_labels_that_differ(
    tmp_path: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRAINMASTER_HOME", environment["TRAINMASTER_HOME"])
    paths = []
    for name in ("first", "second"):
        log = tmp_path / name / "out" / "train.log"
        log.parent.mkdir(parents=True)
        log.write_text("".join(f"step {n} loss {3.0 - n / 100:.3f}\n" for n in range(1, 50)))
        paths.append(str(log))
    assert run(["metrics", *paths, "--key", "loss"]) == 0
    printed = capsys.readouterr().out
    assert "first/out/train.log" in printed and "second/out/train.log" in printed
    assert not [row for row in printed.splitlines() if row.startswith(str(tmp_path))]

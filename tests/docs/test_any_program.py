"""The page on programs that are run as they are: its spec, and the file that it gives to copy."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from trainer_runtime.host.attach.reported import Reports
from trainmaster.plan.spec import load_spec

_ROOT = Path(__file__).resolve().parents[2]
_REPORT = _ROOT / "templates" / "script" / "report.py"
_PAGE = (_ROOT / "docs" / "any-program.md").read_text()


@pytest.fixture
def copied(tmp_path: Path) -> ModuleType:
    """The page's file, copied beside a program."""
    found = re.search(r"```python\n(.*?)```", _PAGE, re.DOTALL)
    assert found is not None
    assert found.group(1) == _REPORT.read_text()
    spec = importlib.util.spec_from_file_location("copied", _REPORT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_spec_is_taken() -> None:
    text = re.search(r"\n((?:    .*\n)+)", _PAGE)
    assert text is not None
    spec = load_spec(re.sub(r"^    ", "", text.group(1), flags=re.MULTILINE))
    assert spec.script is not None


def test_the_copied_file_reports_what_is_read(
    copied: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, stop = tmp_path / "events", tmp_path / "stop"
    monkeypatch.setenv("TRAINMASTER_EVENTS", str(events))
    monkeypatch.setenv("TRAINMASTER_STOP", str(stop))
    copied.report(target=400)
    copied.report(1, loss=float("nan"), lr=0.1)
    copied.report(1, val_loss=2, checkpoint="out/ckpt.pt")
    assert copied.should_stop() is False
    stop.touch()
    assert copied.should_stop() is True
    reports = Reports(events)
    target, trained, evaluated, watches = reports.read()
    assert (target.target, trained.step, evaluated.checkpoint) == (400, 1, "out/ckpt.pt")
    assert json.dumps(dict(trained.trained)) == '{"loss": NaN, "lr": 0.1}'
    assert (dict(evaluated.trained), dict(evaluated.evaluated)) == ({}, {"val_loss": 2.0})
    assert watches.watches_stop
    assert reports.unreadable == 0


def test_the_copied_file_does_nothing_without_a_run_and_in_other_ranks(
    copied: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied.report(1, loss=1.0)
    assert copied.should_stop() is False
    monkeypatch.setenv("TRAINMASTER_EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("RANK", "1")
    copied.report(1, loss=1.0)
    assert not (tmp_path / "events").exists()


@pytest.mark.parametrize("line", ["loss 3.2", "[1, 2]", '{"loss": 1.0}', '{"step": -1, "loss": 1}'])
def test_a_line_of_another_form_is_counted_and_passed_over(tmp_path: Path, line: str) -> None:
    events = tmp_path / "events"
    events.write_text(f'{line}\n{{"step": 2, "loss": 1.0, "name": "x", "flag": true}}\n')
    reports = Reports(events)
    assert [dict(one.trained) for one in reports.read()] == [{"loss": 1.0}]
    assert reports.unreadable == 1

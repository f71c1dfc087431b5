"""A real training in sessions of a real script: ended early, lost, and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.host.kaggle_kernels import RUN_SLUG, Copy, Kernel, Session, carried
from support.host.tiny_training import TinyRun, prepared_config
from support.plan.rendered import script_text

from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.core.protocol.states import PlacementState

pytestmark = [pytest.mark.slow, pytest.mark.engine]

SCRIPT = script_text("nanogpt", style="gpt2")
# A step that lasts, where a test says so: until the trainer is signalled to save.
LASTING = """
        while str(attempt.step) == os.environ.get("LASTING_STEP") and not attempt._stop:
            time.sleep(0.02)
        attempt.save_if_due()
"""
LASTING_SCRIPT = SCRIPT.replace("\n        attempt.save_if_due()\n", LASTING).replace(
    "import sys\n", "import os\nimport sys\n", 1
)
Values = dict[int, tuple[Any, ...]]


def measured(events: bytes) -> Values:
    """The losses, norms and rates of every step in an attempt's events."""
    documents = [decode(line).document for line in complete_lines(events)[0]]
    values = {event["step"]: event["values"] for event in documents if event["kind"] == "metric"}
    keys = ("loss", "grad_norm", "lr")
    return {step: tuple(of[key] for key in keys) for step, of in values.items() if "loss" in of}


def ended_early(session: Session) -> Session:
    """Train until the fifteenth step, then get the signal that the time is over."""
    session.start(LASTING_STEP="15").wait_for_step(1, 15)
    session.interrupt()
    assert session.end() == 0
    return session


def lost(session: Session) -> Session:
    """Train until the twenty-fifth step, and be gone with all that was saved."""
    session.start(LASTING_STEP="25").wait_for_step(2, 25)
    session.lose()
    return session


def test_sessions_train_as_one_bit_for_bit_whatever_becomes_of_them(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = prepared_config(tmp_path, "nanogpt", b"to be or not to be, " * 1000)
    config |= {"recovery": {"max_restarts": 3}, "derived": {"sequences_per_step": 8}}
    kernel = Kernel(tmp_path, config, LASTING_SCRIPT)
    request.addfinalizer(kernel.close)
    whole = TinyRun(tmp_path / "whole", config)
    assert whole.train()[0] == 0

    first = ended_early(kernel.push())
    copy = Copy().take(first.log)
    assert copy.record.state is PlacementState.RECOVERING
    assert (copy.record.reason, copy.record.detail) == ("session_over", "saved and ended")
    for name, data in copy.files.items():
        assert data == (first.run.root / name).read_bytes(), name

    known = len(copy.journal)
    second = kernel.push(previous=RUN_SLUG, journal_bytes=known)
    second.mount(first.working, RUN_SLUG)
    lost(second)
    for log in (second.log, second.log[:9000], second.log):  # from the beginning, again and again
        copy.take(log)
    assert [attempt.reason for attempt in copy.record.attempts] == ["session_over", None]

    third = kernel.push(
        previous=RUN_SLUG,
        journal_bytes=len(copy.journal),
        carried=carried(copy.journal, known),
        newest_attempt=2,
    )
    third.mount(first.working, f"notebooks/somebody/{RUN_SLUG}")
    assert third.start().end() == 0
    copy.take(third.log)
    record = copy.record
    assert (record.state, record.closed) == (PlacementState.COMPLETED, True)
    assert [
        (one.why, one.reason, one.started_at_step, one.last_step) for one in record.attempts
    ] == [
        ("launch", "session_over", 0, 15),
        ("session_over", "reboot", None, None),
        ("reboot", "completed", 15, 40),
    ]
    assert copy.journal == third.run.journal.read_bytes()

    expected = measured((whole.folder / "events.jsonl").read_bytes())
    by_attempt = {n: measured(copy.files[f"attempts/{n}/events.jsonl"]) for n in (1, 2, 3)}
    assert [list(values) for values in by_attempt.values()] == [
        list(range(1, 16)),
        list(range(16, 26)),
        list(range(16, 41)),
    ]
    for values in by_attempt.values():
        assert values == {step: expected[step] for step in values}
    assert (third.run.root / "final/model.safetensors").read_bytes() == whole.weights()
    index = json.loads((third.run.root / "checkpoints_index.json").read_bytes())
    assert [entry["step"] for entry in index["checkpoints"]] == [20, 30, 40]

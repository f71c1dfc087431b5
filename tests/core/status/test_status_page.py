from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.core.journal_records import (
    FIRST_T,
    attempt_ended,
    attempt_starting,
    evaluation,
    failed,
    kept,
    metric,
    progress,
    record,
    saved,
    started,
    state,
)

from trainer_runtime.core.checkpoints.checkpoint_index import build_index
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.progress import Progress, newest_progress
from trainer_runtime.core.status.eta import eta_s
from trainer_runtime.core.status.status_page import render_status

_GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "status"
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"

CONFIG: dict[str, Any] = {
    "name": "stdlib-gpt",
    "run_id": "stdlib-gpt-abc234",
    "framework": "nanogpt",
    "steps": 1000,
    "checkpoint": {"every": "2m"},
    "limits": {"max_runtime_s": 86400.0},
}
DESCRIBED = {"parameters": 836_224, "precision": "bf16", "device": "cpu"}
GPUS = {"gpu_util": 94.0, "gpu_mem_gib": 61.5, "gpu_temp_c": 64.0, "gpu_power_w": 610.0}
GPUS |= {"gpu_util/0": 93.0, "gpu_util/1": 95.0}
FIRST = progress(
    1,
    started(0, 1000, **DESCRIBED),
    metric(1, 5.5, lr=1e-4, step_time_s=0.2),
    evaluation(200, 3.0),
    *kept(200, 3.0),
    *kept(300),
    metric(310, 2.9, lr=1e-3, grad_norm=0.75, step_time_s=0.2, tokens_per_s=40960.0),
)
SECOND = progress(
    2,
    started(300, 1000, **DESCRIBED),
    metric(301, 2.95, lr=1e-3, grad_norm=0.7, step_time_s=0.25, tokens_per_s=32768.0),
    evaluation(400, 2.7),
    *kept(400, 2.7),
    ("warning", {"code": "loss_spike", "step": 430, "message": "", "values": {"loss": 9.0}}),
    saved(450),
    failed(450, "model.safetensors: chunk 0 differs"),
    metric(460, 2.6, lr=9e-4, grad_norm=0.6, step_time_s=0.25, tokens_per_s=32768.0),
)
RUNNING = record(
    attempt_starting(1),
    state("preparing", generation=1),
    ("attempt_running", {"attempt": 1}),
    state("running"),
    ("sample", {"values": {"cpu_util": 97.5, "host_mem_gib": 3.25, "disk_free_gib": 120.5}}),
    attempt_ended(
        1,
        "killed",
        signal=9,
        detail="ended by signal 9 (SIGKILL)",
        started_at_step=0,
        last_step=310,
    ),
    state("recovering", reason="killed", detail="ended by signal 9 (SIGKILL)"),
    attempt_starting(2, why="killed"),
    ("attempt_running", {"attempt": 2}),
    state("running"),
)
FINDING = {
    "id": "0a1b2c3d",
    "code": "cuda_oom",
    "severity": "critical",
    "confidence": 0.95,
    "step": 61,
    "evidence": ["torch.OutOfMemoryError: CUDA out of memory, said `somebody`."],
    "explanation": "A GPU ran out of memory.",
    "patches": [
        {
            "id": "p1",
            "set": {"batch.micro_batch": 4, "batch.accumulation": 2},
            "why": "Half the sequences at a time.",
        }
    ],
    "advice": ["See who else holds the GPU's memory."],
}
TROUBLED = record(
    attempt_starting(1),
    ("attempt_running", {"attempt": 1}),
    state("running"),
    *(
        ("sample", {"values": {**GPUS, "disk_free_gib": 40.0 - number}})
        for number in range(30)
        for _ in range(30)
    ),
    ("finding", {"attempt": 1, "finding": FINDING}),
    ("finding", {"attempt": 1, "finding": {**FINDING, "id": "f2", "code": "closed"}}),
    ("finding_closed", {"attempt": 1, "id": "f2"}),
)
LATE = progress(
    1,
    started(0, 100_000, **DESCRIBED),
    ("phase", {"name": "domain"}),
    *(metric(step, 2.0 + 8.0 / step, step_time_s=2.0) for step in range(1, 501)),
    saved(20),
)
ENDED = record(
    attempt_starting(1),
    attempt_ended(1, "unusable", code=77, detail="data.sources.main | it is empty"),
    state("failed", reason="unusable", detail="data.sources.main: it is empty"),
)


def page(found: Record, *attempts: Progress, now: float = FIRST_T + 50) -> str:
    return render_status(
        found, attempts, build_index(attempts, "val_loss"), RunConfig.parse(CONFIG), now
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("running.md", page(RUNNING, FIRST, SECOND)),
        ("troubled.md", page(TROUBLED, LATE, now=FIRST_T + 1200)),
        ("failed.md", page(ENDED, progress(1))),
        ("placed.md", page(Record())),
    ],
)
def test_the_page_is_the_golden_one(name: str, text: str) -> None:
    golden = _GOLDEN / name
    if _UPDATE:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_a_bar_in_a_reason_does_not_break_the_table() -> None:
    row = next(line for line in page(ENDED, progress(1)).splitlines() if line.startswith("| 1 |"))
    assert row.count("|") == 7


def test_without_a_verified_checkpoint_the_page_warns() -> None:
    running = record(attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running"))
    assert "No verified checkpoint yet" in page(running, progress(1, started(), metric(1)))
    assert "No verified checkpoint yet" not in page(running, FIRST)


def test_what_matters_most_comes_first() -> None:
    text = page(TROUBLED, LATE, now=FIRST_T + 1200)
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## Figures", "## Findings", "## Risks", "## Checkpoints", "## Attempts"]


def test_evidence_cannot_leave_its_place_on_the_page() -> None:
    text = page(TROUBLED, LATE, now=FIRST_T + 1200)
    assert "  - seen: `torch.OutOfMemoryError: CUDA out of memory, said 'somebody'.`" in text


def test_a_finding_that_is_over_is_named_in_one_line() -> None:
    text = page(TROUBLED, LATE)
    assert "`closed`" not in text
    assert "- 1 over: closed at 61\n" in text


def test_the_page_of_an_attached_training_advises_what_can_be_done_with_it() -> None:
    attached = RunConfig.parse({**CONFIG, "framework": "attached"})
    text = render_status(TROUBLED, [LATE], build_index([], "val_loss"), attached, FIRST_T + 1200)
    assert "cuda_oom" in text
    assert [word for word in ("trainmaster resume", "loses everything") if word in text] == []


def test_a_step_that_does_not_come_leaves_no_time_left() -> None:
    assert "Time left" in page(RUNNING, FIRST, SECOND)
    assert "Time left" not in page(RUNNING, FIRST, SECOND, now=FIRST_T + 1200)


def test_commands_of_the_page_are_worded_for_who_shows_it() -> None:
    text = render_status(
        TROUBLED,
        [LATE],
        build_index([], "val_loss"),
        RunConfig.parse(CONFIG),
        FIRST_T,
        lambda advice: advice.replace("trainmaster ", "/opt/trainmaster "),
    )
    assert "`/opt/trainmaster stop stdlib-gpt-abc234`, then `/opt/trainmaster resume" in text
    assert "`trainmaster" not in text


def test_the_best_follows_the_metric_that_checkpoints_are_chosen_by() -> None:
    bodies = [
        ("eval", {"step": step, "values": {"val_loss": 0.5, "val_margin": margin, "val_reward": 1}})
        for step, margin in ((2, 1.5), (4, 1.25))
    ]
    attempts = [progress(1, started(), *bodies)]
    config = {**CONFIG, "checkpoint": {"metric": "val_margin"}}
    text = render_status(
        RUNNING, attempts, build_index([], "val_margin"), RunConfig.parse(config), FIRST_T
    )
    assert "- Best: val_loss 0.5 at step 2, val_margin 1.5 at step 2\n" in text


def test_a_run_whose_target_nobody_knows_has_no_bar() -> None:
    text = render_status(
        RUNNING,
        [progress(1, ("started", {"step": 0}), metric(7))],
        build_index([], "val_loss"),
        RunConfig.parse({**CONFIG, "steps": None}),
        FIRST_T,
    )
    assert "- Progress: step 7\n" in text


def test_an_ended_run_has_no_risks_and_no_time_left() -> None:
    ended = record(attempt_starting(1), state("running"), state("stopped", reason="stopped"))
    text = page(ended, FIRST)
    assert "Risks" not in text and "Time left" not in text


def test_an_attempt_that_never_started_does_not_hide_the_one_before() -> None:
    assert newest_progress([FIRST, Progress(2)]) is FIRST
    assert newest_progress([Progress(1), Progress(2)]) == Progress(2)
    assert newest_progress([]) is None


def test_the_time_left_is_the_steps_left_at_the_present_pace() -> None:
    assert eta_s(progress(1, started(0, 100), metric(40, step_time_s=0.5))) == 30.0
    assert eta_s(progress(1, started(0, 100), metric(120, step_time_s=0.5))) == 0.0
    assert eta_s(progress(1, started(0, 100))) is None
    assert eta_s(None) is None


def test_a_nan_loss_is_shown_as_nan() -> None:
    running = record(attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running"))
    text = page(running, progress(1, started(), metric(1, float("nan")), metric(2, float("inf"))))
    assert "- Last: loss Infinity" in text
    assert "Loss `!!`" in text

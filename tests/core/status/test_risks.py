from __future__ import annotations

from typing import Any

import pytest
from support.core.journal_records import (
    FIRST_T,
    EventBody,
    attempt_starting,
    kept,
    metric,
    progress,
    record,
    saved,
    started,
)

from trainer_runtime.core.checkpoints.checkpoint_index import build_index
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.protocol.curve import Curve
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.status.risks import budget_risk, disk_hours_left, risks

RUNNING = record(attempt_starting(1), ("attempt_running", {"attempt": 1}))


def risks_after(
    *events: EventBody,
    found: Record = RUNNING,
    config: dict[str, Any] | None = None,
    after_s: float = 60.0,
    remaining_s: float | None = None,
) -> list[str]:
    attempt = progress(1, started(0, 1000), *events)
    index = build_index([attempt], "val_loss")
    return risks(
        found, attempt, index, RunConfig.parse(config or {}), FIRST_T + after_s, remaining_s
    )


def test_a_run_that_saves_as_it_should_has_no_risks() -> None:
    config = {"checkpoint": {"every": 20}, "limits": {"max_runtime_s": 7200}}
    assert risks_after(metric(20), *kept(20), metric(25), config=config, remaining_s=600.0) == []


@pytest.mark.parametrize(
    ("every", "decided", "overdue"),
    [
        (20, None, True),
        (60, None, False),
        ("10m", None, True),
        ("10m", "1h", False),
        ("1h", "10m", True),
        ("nonsense", None, False),
    ],
)
def test_a_checkpoint_is_overdue_by_the_decided_or_configured_interval(
    every: int | str, decided: str | None, overdue: bool
) -> None:
    events = [*kept(20), metric(100)]
    if decided:
        events.append(("decision", {"what": "checkpoint_every", "value": decided}))
    found = risks_after(*events, config={"checkpoint": {"every": every}}, after_s=2000.0)
    assert any("where one is due every" in risk for risk in found) is overdue


def test_a_checkpoint_that_stays_unverified_is_a_risk() -> None:
    assert not any("not verified" in risk for risk in risks_after(*kept(20), saved(40)))
    late = risks_after(*kept(20), saved(40), after_s=1200.0)
    assert any("step 40" in risk and "not verified yet" in risk for risk in late)


def test_a_limit_that_comes_before_the_end_is_reported() -> None:
    config = {"limits": {"max_runtime_s": 3600}}
    (risk,) = risks_after(*kept(20), config=config, after_s=1800.0, remaining_s=7200.0)
    assert risk == "It needs about 2 h more, but limits.max_runtime ends it in 30 min."


def _filling(gib_per_hour: float) -> Record:
    found = record(attempt_starting(1))
    for minute in range(120):
        found.disk_free.add(FIRST_T + 60 * minute, 100.0 - gib_per_hour * minute / 60)
    found.telemetry = {"disk_free_gib": 100.0 - gib_per_hour * 2}
    return found


def test_a_disk_that_fills_before_the_end_is_reported_with_the_remaining_time() -> None:
    (risk,) = risks_after(*kept(20), found=_filling(20.0), remaining_s=36_000.0)
    assert risk.startswith("The disk is full in about 2 h 57 min") and "60 GiB are free" in risk
    assert risks_after(*kept(20), found=_filling(20.0), remaining_s=3600.0) == []
    assert risks_after(*kept(20), found=_filling(0.0), remaining_s=36_000.0) == []


def test_space_that_pruning_gives_back_fills_no_disk() -> None:
    free = Curve()
    for minute in range(240):
        free.add(60.0 * minute, 50.0 - (minute % 20))
    assert disk_hours_left(free, 31.0) is None


def test_a_time_limit_says_how_far_the_run_gets() -> None:
    config = {"limits": {"max_runtime_s": 3600}}
    events = [*kept(20), metric(100)]
    (risk,) = risks_after(*events, config=config, after_s=1800.0, remaining_s=7200.0)
    assert risk.endswith("ends it in 30 min: enough up to about step 325 of 1,000.")


def test_a_budget_that_does_not_buy_the_rest_says_what_it_buys() -> None:
    attempt = progress(1, started(0, 1000), metric(400))
    enough = budget_risk(attempt, remaining_s=3600.0, usd=4.0, usd_per_h=6.0, budget_usd=10.0)
    assert enough is None
    assert budget_risk(attempt, remaining_s=3600.0, usd=4.0, usd_per_h=6.0, budget_usd=7.0) == (
        "It will cost about $10.00, but limits.budget_usd is $7.00: "
        "enough up to about step 700 of 1,000."
    )


def _falling(target: float) -> list[str]:
    """The risks at step 500 of 1,000 of a loss that falls as 2 + 8 / sqrt(step)."""
    events = [metric(step, 2 + 8 * step**-0.5) for step in range(1, 501)]
    phase = {"name": "all", "steps": 1000, "sequences": 1, "seq_len": 8}
    success = {"metric": "loss", "below": target}
    config = {"steps": 1000, "phases": [{**phase, "success": success}]}
    return risks_after(*kept(20), *events, *kept(500), config=config)


def test_a_target_that_the_loss_curve_does_not_lead_to_is_a_risk_with_what_is_possible() -> None:
    assert _falling(2.3) == []  # it ends at 2.25
    (late,) = _falling(2.15)
    assert late.startswith(
        "loss is on its way to 2.25 at step 1,000, but phase all is to end below"
    )
    steps = int(late.rpartition("about ")[2].split()[0].replace(",", ""))
    assert steps == pytest.approx((8 / 0.15) ** 2, rel=0.05)
    (never,) = _falling(1.9)
    assert never.endswith("below 1.9: no number of steps leads there at these settings.")

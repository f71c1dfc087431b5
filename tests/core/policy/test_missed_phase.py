from __future__ import annotations

from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.policy.missed_phase import MissedPhase, missed_phase
from trainer_runtime.core.policy.patch import apply_sets


def document(on_miss: str) -> dict[str, Any]:
    phases = [
        {"name": "base", "steps": 10},
        {"name": "hard", "steps": 40, "on_miss": on_miss},
        {"name": "last", "steps": 5},
    ]
    rest = {"sequences": 4, "seq_len": 8, "lr_scale": 1.0, "tries": 0}
    return {"steps": 55, "phases": [{**rest, **phase} for phase in phases], "data": {"seq_len": 8}}


def missed(config: dict[str, Any]) -> MissedPhase | None:
    return missed_phase(RunConfig.parse(config), "hard")


def test_an_extension_is_half_the_planned_steps_twice() -> None:
    config = document("extend")
    for steps in (75, 95):
        remedy = missed(config)
        assert remedy is not None and remedy.resume_from == "latest"
        config = apply_sets(config, remedy.set)
        assert config["steps"] == steps
    assert config["phases"][1]["steps"] == 80
    assert missed(config) is None


def test_a_roll_back_repeats_the_phase_at_half_and_a_quarter_of_its_rate() -> None:
    config = document("rollback")
    for scale in (0.5, 0.25):
        remedy = missed(config)
        assert remedy is not None and remedy.resume_from == 10
        config = apply_sets(config, remedy.set)
        assert config["phases"][1]["lr_scale"] == scale
    assert missed(config) is None


def test_a_missed_phase_that_stops_the_run_has_no_next_attempt() -> None:
    assert missed(document("stop")) is None

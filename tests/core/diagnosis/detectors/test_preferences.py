"""What the detectors find in trainings from preferences and rewards, and what they leave alone."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.core.metric_series import all_codes

from trainer_runtime.core.diagnosis.detectors import Detectors, Settings
from trainer_runtime.core.protocol.finding import Finding

# TRL 1.16 on a tiny model: one run as it should be, one whose labels were swapped at step 61, one
# at a rate 300 times as high.
RECORDED = Path(__file__).parents[3] / "golden" / "series"


def of_method(method: str, beta: float = 0.1, **config: Any) -> Detectors:
    given = {"framework": "trl", "method": method, "method_args": {"beta": beta}, **config}
    return Detectors(Settings(config={"optimizer": {"lr": 1e-4, "grad_clip": 1.0}, **given}))


def log_values(detectors: Detectors, step: int, values: Mapping[str, float]) -> None:
    for key, value in values.items():
        detectors.point(key, step, None, value)


def fed_from_csv(name: str, detectors: Detectors) -> Detectors:
    with (RECORDED / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            log_values(
                detectors, int(row.pop("step")), {key: float(text) for key, text in row.items()}
            )
    return detectors


def only(detectors: Detectors, code: str) -> Finding:
    found = [one for one in detectors.findings(closed=True) if one.code == code]
    assert len(found) == 1, all_codes(detectors)
    return found[0]


def test_a_dpo_that_learns_raises_no_alarm() -> None:
    assert all_codes(fed_from_csv("dpo_healthy", of_method("dpo"))) == []


def test_swapped_labels_are_a_collapse_of_the_margin_at_its_onset() -> None:
    detectors = of_method("dpo")
    for action in ("saved", "verified"):
        detectors.event("checkpoint", step=60, fields={"action": action})
    found = only(fed_from_csv("dpo_collapse", detectors), "margin_collapse")
    assert (found.severity, found.step) == ("critical", 61)
    assert "5.38 at step 60" in found.evidence[0]
    raised = next(patch for patch in found.patches if patch.id == "rewind_raise_beta")
    assert (raised.resume_from, raised.set) == (60, {"method_args.beta": 0.2})
    assert raised.expected == {"method_args.beta": 0.1}


@pytest.mark.parametrize(("resumed_at", "is_found"), [(60, True), (8, False)])
def test_pairs_that_are_others_after_a_resume_unlearn_as_well(
    resumed_at: int, is_found: bool
) -> None:
    """A resume from before the margin was learnt is not a collapse."""
    detectors = of_method("dpo")
    for step in range(1, 61):
        log_values(detectors, step, {"rewards/margins": 0.1 * step})
    detectors.event("attempt_starting", fields={"attempt": 2})
    detectors.event("started", step=resumed_at)
    for step in range(resumed_at + 1, resumed_at + 41):
        margin = -2.0 if is_found else 0.1 * step
        log_values(detectors, step, {"rewards/margins": margin + 0.01 * (step % 3)})
    found = [(one.code, one.step) for one in detectors.findings(closed=True)]
    assert found == ([("margin_collapse", 61)] if is_found else [])


def test_chosen_answers_that_become_unlikely_are_over_optimised() -> None:
    found = only(fed_from_csv("dpo_chosen_falls", of_method("dpo")), "over_optimization")
    assert found.severity == "critical"
    assert found.patches[0].id == "rewind_raise_beta"
    # Without the beta nobody can log_values how likely the reference finds them.
    unknown = fed_from_csv("dpo_chosen_falls", Detectors())
    assert "over_optimization" not in all_codes(unknown)


@pytest.mark.parametrize("scatter", [1.0, 3.0, 10.0])
def test_margins_that_scatter_raise_no_alarm(scatter: float) -> None:
    for seed in range(8):
        chosen = random.Random(f"{seed} {scatter}")
        detectors = of_method("dpo")
        for step in range(1, 2001):
            level = 0.5 * (1 - math.exp(-step / 200))
            margin = chosen.gauss(level, 0.5 * scatter)
            right = sum(chosen.gauss(level, 0.5 * scatter) > 0 for _ in range(4)) / 4
            log_values(detectors, step, {"rewards/accuracies": right, "rewards/margins": margin})
        assert all_codes(detectors) == [], f"seed {seed}"


def test_answers_that_drift_as_in_published_runs_raise_no_alarm() -> None:
    """Both fall by tens of nats while answers of all lengths come by (as zephyr-7b-dpo's did)."""
    for seed in range(5):
        chosen = random.Random(seed)
        detectors = of_method("dpo")
        for step in range(1, 1501):
            part = 1 - math.exp(-step / 400)
            lengths = [chosen.lognormvariate(5.3, 0.8) for _ in range(4)]
            nats, worse = sum(lengths) / 4, sum(lengths) / 4 * chosen.uniform(0.7, 1.4)
            fell, more = 0.18 * part * nats, 0.4 * part * worse
            values = {
                "rewards/chosen": -0.1 * fell,
                "rewards/rejected": -0.1 * more,
                "rewards/margins": 0.1 * (more - fell) + chosen.gauss(0, 0.5),
                "logps/chosen": -nats - fell,
                "logps/rejected": -worse - more,
            }
            log_values(detectors, step, values)
        assert all_codes(detectors) == [], f"seed {seed}"


def test_held_out_pairs_that_are_ranked_worse_again_are_reported() -> None:
    detectors = of_method("dpo")
    chosen = random.Random(3)
    for step in range(1, 1001):
        margin = step / 100
        pair = {"rewards/chosen": margin / 2, "rewards/rejected": -margin / 2}
        log_values(
            detectors, step, {**pair, "logps/chosen": -100.0, "logps/rejected": -100.0 - margin}
        )
        if step % 50 == 0:
            right = 0.75 - 0.3 * abs(step - 400) / 600 + chosen.gauss(0, 0.003)
            log_values(detectors, step, {"val_rewards/accuracies": right})
    found = only(detectors, "over_optimization")
    assert found.step == 400
    assert "at step 400" in " ".join(found.evidence)


def test_losses_of_preferences_raise_no_alarm() -> None:
    """From ln 2 towards 0, with the scatter of four pairs a step and epochs that lower it."""
    for method, start in (("dpo", math.log(2)), ("kto", 0.5), ("reward", math.log(2))):
        for seed in range(4):
            chosen = random.Random(f"{method} {seed}")
            detectors = of_method(method)
            for step in range(1, 1501):
                margin = 4 * (1 - math.exp(-step / 300)) + 2 * (step > 750)
                pairs = [chosen.gauss(margin, 0.3 + 0.4 * margin) for _ in range(4)]
                loss = sum(math.log1p(math.exp(-pair)) for pair in pairs) / 4
                log_values(detectors, step, {"loss": loss * start / math.log(2), "grad_norm": 1.0})
            assert all_codes(detectors) == [], f"{method} {seed}"


def rewarded(detectors: Detectors, steps: int, seed: int, kl_scale: float = 0.05) -> random.Random:
    """GRPO as it goes well: a loss around 0, rewards that rise, a KL that grows and jumps."""
    chosen = random.Random(seed)
    for step in range(1, steps + 1):
        jump = 40.0 if chosen.random() < 0.01 else 1.0
        kl = kl_scale * (1 - math.exp(-step / 300)) * chosen.lognormvariate(0, 0.4) * jump
        values = {
            "loss": chosen.choice([0.0, 0.0, chosen.gauss(0, 0.05)]),
            "grad_norm": chosen.lognormvariate(0, 0.3),
            "reward": 0.2 + 0.5 * (1 - math.exp(-step / 400)) + chosen.gauss(0, 0.1),
            "reward_std": 0.3,
            "frac_reward_zero_std": chosen.choice([0.0, 0.25, 0.5, 1.0]),
            "kl": kl,
        }
        log_values(detectors, step, values)
    return chosen


def test_a_grpo_that_learns_raises_no_alarm() -> None:
    for seed in range(6):
        detectors = of_method("grpo", beta=0.04)
        rewarded(detectors, 1500, seed)
        assert all_codes(detectors) == [], f"seed {seed}"
        of_others = Detectors()
        rewarded(of_others, 1500, seed)
        assert all_codes(of_others) == [], f"seed {seed}, unknown configuration"


def test_a_diverging_policy_is_reported_and_beta_is_raised() -> None:
    detectors = of_method("grpo", beta=0.0)
    detectors.event("checkpoint", step=450, fields={"action": "verified"})
    rewarded(detectors, 500, 1)
    for step in range(501, 560):
        log_values(detectors, step, {"reward": 0.1, "kl": 0.05 * 1.15 ** (step - 500)})
    found = only(detectors, "kl_blowup")
    assert found.severity == "critical"
    assert 515 <= (found.step or 0) <= 530
    assert found.patches[0].set == {"method_args.beta": 0.04}
    assert found.patches[0].resume_from == 450


def test_the_kl_of_whole_answers_may_be_larger() -> None:
    detectors = of_method("kto")
    for step in range(1, 600):
        log_values(detectors, step, {"loss": 0.4, "kl": 10 * (1 - math.exp(-step / 100))})
    assert all_codes(detectors) == []
    for step in range(600, 640):
        log_values(detectors, step, {"loss": 0.4, "kl": 400.0})
    assert only(detectors, "kl_blowup").severity == "critical"


@pytest.mark.parametrize(("reward", "severity"), [(0.05, "warning"), (0.98, "info")])
def test_identical_rewards_are_reported_as_failed_or_solved(reward: float, severity: str) -> None:
    detectors = of_method("grpo", beta=0.04)
    rewarded(detectors, 300, 2)
    for step in range(301, 340):
        values = {"reward": reward, "reward_std": 0.0, "frac_reward_zero_std": 1.0}
        log_values(detectors, step, {"loss": 0.0, **values})
    found = only(detectors, "reward_collapse")
    assert (found.severity, found.step) == (severity, 301)
    if severity == "info":
        assert "seems to be solved" in " ".join(found.evidence)


def test_rewards_that_never_differ_are_reported_from_the_start() -> None:
    detectors = of_method("grpo")
    for step in range(1, 40):
        log_values(detectors, step, {"loss": 0.0, "reward": 0.0, "reward_std": 0.0})
    found = only(detectors, "reward_collapse")
    assert (found.severity, found.step, found.patches) == ("warning", 1, ())
    assert all_codes(detectors) == ["reward_collapse"]


def test_a_reward_that_differs_again_is_over() -> None:
    detectors = of_method("grpo", beta=0.04)
    rewarded(detectors, 100, 4)
    for step in range(101, 130):
        log_values(detectors, step, {"reward": 0.0, "frac_reward_zero_std": 1.0})
    assert [one.code for one in detectors.findings()] == ["reward_collapse"]
    for step in range(130, 140):
        log_values(detectors, step, {"reward": 0.3, "frac_reward_zero_std": 0.0})
    assert detectors.findings() == []

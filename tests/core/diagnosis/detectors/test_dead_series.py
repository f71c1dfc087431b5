"""What the detectors find where a training is dead or lost without an error, and what not."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

import pytest
from support.core.metric_series import all_codes, codes, feed

from trainer_runtime.core.diagnosis.detectors import Detectors
from trainer_runtime.core.protocol.finding import Finding

_NAN = math.nan
Row = Mapping[str, float]


def fed(rows: Iterable[Row], first_step: int = 1, detectors: Detectors | None = None) -> Detectors:
    detectors = detectors or Detectors()
    for step, row in enumerate(rows, first_step):
        for key, value in row.items():
            detectors.point(key, step, None, value)
    return detectors


def only(detectors: Detectors) -> Finding:
    (finding,) = detectors.findings()
    return finding


def grpo_row(step: int) -> Row:
    return {
        "loss": 0.0,
        "grad_norm": 0.1 + 0.001 * (step % 7),
        "lr": 1e-6,
        "reward": 1 + 0.01 * (step % 11),
        "reward_std": 0.4,
    }


# A policy's loss.


@pytest.mark.parametrize(
    "losses",
    [
        [0.0, 0.0, 0.0065, 0.0, 0.0001] + [0.0001, 0.0, 0.0003] * 30 + [0.0569, 0.4, 0.3] * 5,
        [0.004, -0.003, 0.001, -0.005] * 20 + [0.4, 0.5, 0.6] * 5,
        [0.0001] * 20 + [0.2, 0.2, 0.2, -0.1, -0.2],
    ],
)
def test_a_loss_about_zero_has_no_level_to_jump_from(losses: list[float]) -> None:
    assert not all_codes(fed({"loss": loss} for loss in losses))


@pytest.mark.parametrize("first", [[0.0], [0.0, 0.0, 3.1], [0.3, 0.0, 0.0, 0.3], [-1.0]])
def test_a_zero_or_a_placeholder_at_the_start_hides_no_spike(first: list[float]) -> None:
    level = [2.0 + 0.01 * (step % 5) for step in range(60)]
    losses = [*first, *level, 9.0, 9.5, 9.4, 9.6]
    assert "loss_spike" in all_codes(fed({"loss": loss} for loss in losses))


# Dead.


@pytest.mark.parametrize(
    ("row", "severity", "says"),
    [
        ({"loss": 0.0, "grad_norm": 0.0, "lr": 2e-5}, "critical", "masked"),
        ({"loss": 0.0, "lr": 0.0}, "critical", "Loss and learning rate are 0"),
        ({"loss": 0.0}, "warning", "from the first point on"),
        ({"loss": 2.4181, "grad_norm": 1.5, "lr": 1e-4}, "warning", "the same number"),
    ],
)
def test_a_series_that_never_moves_is_not_learning(row: Row, severity: str, says: str) -> None:
    finding = only(fed([row] * 59))
    assert (finding.code, finding.severity, finding.step) == ("not_learning", severity, 1)
    assert says in finding.explanation


@pytest.mark.parametrize(("key", "says"), [("lr", "rate is 0"), ("grad_norm", "norm is 0")])
def test_a_rate_or_gradient_of_0_beside_a_loss_that_does_not_fall_is_not_learning(
    key: str, says: str
) -> None:
    rng = random.Random(3)
    rows = [{"loss": rng.gauss(2.5, 0.05), "grad_norm": 1.0, "lr": 1e-4, key: 0.0}] * 0
    rows += [
        {"loss": rng.gauss(2.5, 0.05), "grad_norm": 1.0, "lr": 1e-4} | {key: 0.0} for _ in range(80)
    ]
    finding = only(fed(rows))
    assert finding.code == "not_learning" and says in finding.explanation


def test_a_schedule_that_ends_long_before_the_training_is_found_where_it_ended() -> None:
    rates = [3e-4 * (1 - step / 40) for step in range(40)] + [0.0] * 40
    finding = only(
        fed({"loss": 2 + 0.01 * math.sin(step), "lr": r} for step, r in enumerate(rates))
    )
    assert (finding.code, finding.step) == ("not_learning", 41)


def test_learning_again_closes_the_finding() -> None:
    detectors = fed([{"loss": 0.0, "grad_norm": 0.0}] * 20)
    fed([{"loss": 2.0, "grad_norm": 1.0}] * 3, 21, detectors)
    assert detectors.findings() == [] and all_codes(detectors) == ["not_learning"]


def test_zeros_of_loss_and_gradient_after_a_good_start_are_no_nan() -> None:
    detectors = fed([{"loss": 2.0, "grad_norm": 1.0}, *[{"loss": 0.0, "grad_norm": 0.0}] * 59])
    assert (only(detectors).code, only(detectors).step) == ("not_learning", 2)


# Alive.


def test_a_loss_of_0_at_the_start_of_grpo_raises_no_alarm() -> None:
    assert all_codes(fed(grpo_row(step) for step in range(200))) == []


def test_numbers_that_are_printed_with_few_digits_raise_no_alarm() -> None:
    falls = [3 * 0.99**step for step in range(200)]
    assert all_codes(fed({"loss": x, "lr": 0.0, "grad_norm": 0.0} for x in falls)) == []
    assert all_codes(fed({"loss": 0.01, "grad_norm": 0.3 + x / 100} for x in falls)) == []
    small = [{"loss": 0.0, "grad_norm": 0.02, "lr": 1e-5}] * 100
    assert (
        all_codes(fed([*({"loss": x, "grad_norm": 1.0} for x in (0.3, 0.1, 0.05)), *small])) == []
    )


def test_a_bar_that_repeats_each_loss_for_long_raises_no_alarm_in_the_end() -> None:
    losses = [3 - value / 10 for value in range(9) for _ in range(60)]
    assert "not_learning" not in all_codes(fed({"loss": x + 0.0123} for x in losses))


def test_a_schedule_that_ends_at_0_with_the_training_raises_no_alarm() -> None:
    rates = [1e-3 * (1 + math.cos(math.pi * step / 99)) for step in range(100)] + [0.0] * 3
    rows = ({"loss": 3 - step / 100, "lr": rate} for step, rate in enumerate(rates))
    assert all_codes(fed(rows)) == []


# Diverged within a short log.

_RISES = [2.1, 1.7, 1.5, 3.5, 6.1, 5.6, 5.0, 4.8, 4.7]


def test_a_rise_after_a_fall_is_a_divergence_within_nine_points() -> None:
    finding = only(feed(Detectors(), _RISES))
    assert (finding.code, finding.severity, finding.step) == ("divergence", "critical", 4)
    assert "1.5 at step 3" in finding.evidence[0]
    # It stays open for as long as the loss is high, also when the windows are full.
    longer = feed(Detectors(), [*_RISES, *[4.6 + 0.01 * (i % 5) for i in range(200)]])
    assert codes(longer.findings()) == ["divergence"]


def test_a_loss_that_comes_back_has_not_diverged() -> None:
    assert feed(Detectors(), [*_RISES, 2.0, 1.6, 1.5, 1.4]).findings() == []
    assert all_codes(feed(Detectors(), [2.1, 1.7, 1.5, 3.5, 3.6, 1.6, 1.4, 1.3, 1.2])) == []


def test_short_logs_that_scatter_raise_no_divergence() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        losses = [2 * rng.lognormvariate(-0.03 * step, 0.3) for step in range(32)]
        assert "divergence" not in all_codes(feed(Detectors(), losses)), seed


# Not finite, but not the loss.


def test_rewards_of_nan_beside_a_loss_of_0_are_a_loss_of_nan() -> None:
    good = {"loss": 0.6931, "lr": 1e-5, "rewards/chosen": 0.0, "rewards/margins": 0.0}
    lost = {"loss": 0.0, "lr": 2e-5, "rewards/chosen": _NAN, "rewards/margins": _NAN}
    finding = only(fed([good, lost, lost, lost, lost]))
    assert (finding.code, finding.severity, finding.step) == ("nan_loss", "critical", 2)


def test_rewards_of_nan_beside_finite_losses_count_from_8_in_a_row() -> None:
    row = {"loss": 0.5, "rewards/margins": _NAN}
    assert all_codes(fed([row] * 7)) == []  # KTO: a batch without answers of a kind
    detectors = fed([row | {"loss": 0.5 + step / 99} for step in range(9)])
    assert (only(detectors).code, only(detectors).severity) == ("nan_metric", "warning")
    assert fed([{"rewards/margins": 0.1}], 10, detectors).findings() == []


def test_a_deviation_of_one_reward_names_the_number_of_generations() -> None:
    row = {"loss": 0.0, "grad_norm": _NAN, "reward": 0.25, "reward_std": _NAN}
    finding = fed([row]).findings()[-1]
    assert (finding.code, finding.severity) == ("reward_std_nan", "critical")
    assert "nan_grad" in finding.led_to and "num_generations" in finding.advice[0]


def test_an_evaluation_of_nan_beside_finite_losses_is_of_the_evaluation() -> None:
    detectors = fed([{"loss": 2.0}, {"loss": 1.9, "val_loss": _NAN}])
    assert (only(detectors).code, only(detectors).severity) == ("nan_eval", "warning")
    assert fed([{"loss": 1.8, "val_loss": 2.0}], 3, detectors).findings() == []
    assert only(fed([{"loss": _NAN, "val_loss": _NAN}])).code == "nan_loss"


def test_a_gradient_of_nan_says_whether_the_loss_was_logged() -> None:
    good = {"loss": 0.7, "grad_norm": 0.7}
    beside = only(fed([good, {"loss": 0.7, "grad_norm": _NAN}]))
    assert "although the loss is finite" in beside.explanation
    later = only(fed([good, {"grad_norm": _NAN, "loss": 0.7}]))
    assert "although the loss is finite" in later.explanation
    missing = only(fed([good, {"grad_norm": _NAN}, {"grad_norm": _NAN}]))
    assert "no loss for that step" in missing.explanation
    assert missing.advice[0].startswith("Resume from before the onset")


def test_nan_from_the_first_step_has_nothing_to_resume_from() -> None:
    for row in ({"loss": _NAN}, {"grad_norm": _NAN}):
        finding = only(fed([row] * 5))
        assert "Resume from before" not in " ".join(finding.advice)
        assert "nothing to return to" in " ".join(finding.advice)


# Divergence from a reference below 0; losses that are no longer logged.


def test_a_divergence_below_0_for_long_is_negative() -> None:
    rng = random.Random(5)
    detectors = fed({"reward": 0.1, "objective/kl": -rng.uniform(0.3, 2)} for _ in range(20))
    finding = only(detectors)
    assert (finding.code, finding.step) == ("kl_negative", 1)
    assert "temperature" in finding.advice[0]


def test_an_estimate_of_the_divergence_around_0_raises_no_alarm() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        rows = [{"reward": rng.random(), "objective/kl": rng.gauss(0, 0.3)} for _ in range(300)]
        assert "kl_negative" not in all_codes(fed(rows)), seed


def test_a_loss_that_is_no_longer_logged_is_missing_until_it_is_back() -> None:
    rows = [{"loss": 2 - step / 100, "lr": 1e-4} for step in range(20)]
    detectors = fed([*rows, *[{"lr": 1e-4}] * 40])
    assert (only(detectors).code, only(detectors).step) == ("loss_missing", 20)
    assert fed([{"loss": 1.7, "lr": 1e-4}], 61, detectors).findings() == []


def test_a_loss_that_is_logged_seldom_is_not_missing() -> None:
    rows = [
        {"lr": 1e-4} if step % 50 else {"loss": 2 - step / 9999, "lr": 1e-4} for step in range(600)
    ]
    assert all_codes(fed([*rows, *[{"lr": 1e-4}] * 100])) == []

from __future__ import annotations

import math

import pytest

from trainer_runtime.core.alerts.codes import finding_codes, unknown_code
from trainer_runtime.core.alerts.condition import (
    Condition,
    ConditionError,
    FindingCondition,
    MetricCondition,
    SilenceCondition,
    StateCondition,
    needs_operator,
    parse_condition,
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("val_loss > 3.5 for 3", MetricCondition("val_loss", ">", 3.5, 3)),
        ("val_loss>3.5", MetricCondition("val_loss", ">", 3.5)),
        ("  gpu_util/0   <=  1e1  for 10m ", MetricCondition("gpu_util/0", "<=", 10.0, 1, 600.0)),
        ("rewards/margins != -.5", MetricCondition("rewards/margins", "!=", -0.5)),
        ("state > 3", MetricCondition("state", ">", 3.0)),
        ("finding loss_spike", FindingCondition("loss_spike", None)),
        ("finding critical", FindingCondition(None, "critical")),
        ("state failed", StateCondition("failed")),
        ("silence 1h30m", SilenceCondition(5400.0)),
    ],
)
def test_a_condition_says_what_it_means(text: str, meant: Condition) -> None:
    assert parse_condition(text) == meant


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", 1, "It ends where a metric, or one of finding, state and silence should stand."),
        ("val_loss", 9, "It ends where a comparison"),
        ("val_loss ~ 3", 10, "At character 10 stands '~' instead of a comparison"),
        ("val_loss => 3", 10, "instead of a comparison"),
        ("val_loss > x", 12, "At character 12 stands 'x' instead of a number"),
        ("val_loss > NaN", 12, "instead of a number"),
        ("val_loss > 1e999", 12, "instead of a number"),
        ("val_loss > 3 fro 3", 14, "instead of `for`"),
        ("val_loss > 3 for", 17, "It ends where a count of points or a duration should stand."),
        ("val_loss > 3 for 0", 18, "instead of a count of points (3) or a duration (10m)"),
        ("val_loss > 3 for 3 points", 20, "stands 'points' instead of its end"),
        ("3 > val_loss", 1, "instead of a metric's key"),
        ("finding", 8, "It ends where"),
        ("finding Loss-Spike", 9, "instead of a finding's code"),
        ("state broken", 7, "instead of one of preparing running"),
        ("silence 10", 9, "instead of a duration"),
        ("silence 10m please", 13, "instead of its end"),
        ("loss > 1 and lr > 2", 10, "stands 'and'"),
        ("loss > 1" + " " * 300, 201, "longer than 200"),
    ],
)
def test_an_invalid_condition_is_refused_at_its_position(
    text: str, place: int, message: str
) -> None:
    with pytest.raises(ConditionError) as error:
        parse_condition(text)
    assert error.value.place == place
    assert message in error.value.message


def test_nan_meets_no_comparison_and_infinity_its_own() -> None:
    above = parse_condition("loss > 3")
    assert isinstance(above, MetricCondition)
    assert [above.met_by(value) for value in (math.nan, math.inf, -math.inf)] == [
        None,
        True,
        False,
    ]


def test_only_the_operators_side_can_see_a_run_lost() -> None:
    needing = ("state lost", "state failed", "silence 1m", "loss > 1")
    assert [needs_operator(parse_condition(text)) for text in needing] == [
        True,
        False,
        False,
        False,
    ]


def test_a_code_that_no_finding_has_is_known_as_such() -> None:
    assert {"nan_loss", "loss_spike", "stall", "cuda_oom", "hang_collective"} <= finding_codes()
    assert unknown_code(parse_condition("finding loss_spike")) is None
    assert unknown_code(parse_condition("finding critical")) is None
    unknown = unknown_code(parse_condition("finding los_spike"))
    assert unknown is not None
    assert unknown[1][0] == "loss_spike"

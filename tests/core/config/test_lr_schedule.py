from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime.core.config.lr_schedule import SCHEDULES, lr_factor


@pytest.mark.parametrize("kind", sorted(SCHEDULES))
def test_the_warm_up_rises_in_a_line_to_the_full_rate(kind: str) -> None:
    factors = [lr_factor(kind, step, 100, 4, 0.1) for step in range(1, 5)]
    assert factors == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd", "polynomial", "cosine_restarts"])
def test_the_last_step_is_at_the_minimum(kind: str) -> None:
    assert lr_factor(kind, 100, 100, 10, 0.1) == pytest.approx(0.1)


def test_cosine_is_half_way_down_in_the_middle() -> None:
    assert lr_factor("cosine", 60, 110, 10, 0.0) == pytest.approx(0.5)


def test_linear_falls_in_a_line() -> None:
    assert lr_factor("linear", 35, 110, 10, 0.0) == pytest.approx(0.75)


def test_a_polynomial_is_the_way_that_is_left_to_its_power() -> None:
    assert lr_factor("polynomial", 60, 110, 10, 0.0, power=2.0) == pytest.approx(0.25)


def test_a_cosine_restarts_at_the_peak_in_each_cycle() -> None:
    factors = [
        lr_factor("cosine_restarts", step, 110, 10, 0.0, cycles=2) for step in (35, 59, 60, 85, 110)
    ]
    assert factors == pytest.approx([0.5, 0.0, 1.0, 0.5, 0.0], abs=1e-2)


def test_an_exponential_warm_up_rises_steeply_first_and_ends_at_the_full_rate() -> None:
    factors = [lr_factor("cosine", step, 100, 4, 0.1, warmup="exponential") for step in (1, 2, 4)]
    assert factors == pytest.approx([0.644, 0.881, 1.0], abs=1e-3)


def test_constant_stays() -> None:
    assert lr_factor("constant", 99, 100, 10, 0.1) == 1.0


def test_wsd_is_stable_until_its_last_fifth_then_falls_fast() -> None:
    assert lr_factor("wsd", 80, 100, 0, 0.0) == 1.0
    assert lr_factor("wsd", 85, 100, 0, 0.0) == pytest.approx(1 - math.sqrt(0.25))


def test_inverse_sqrt_halves_when_the_step_quadruples() -> None:
    assert lr_factor("inverse_sqrt", 40, 10_000, 10, 0.0) == pytest.approx(0.5)


def test_without_a_warm_up_the_first_step_has_a_rate() -> None:
    for kind in SCHEDULES:
        assert lr_factor(kind, 1, 1, 0, 0.1) > 0


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 10_000),
    st.integers(1, 10_000),
    st.integers(0, 2_000),
    st.floats(0, 1),
)
def test_factors_stay_between_the_minimum_and_one(
    kind: str, step: int, total: int, warmup: int, minimum: float
) -> None:
    factor = lr_factor(kind, step, total, warmup, minimum)
    assert factor > 0.0 or minimum == 0.0
    assert factor <= 1.0 + 1e-12
    if step > warmup:
        assert factor >= minimum - 1e-12


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(KeyError):
        lr_factor("sawtooth", 1, 10, 0, 0.1)

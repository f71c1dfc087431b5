from __future__ import annotations

import math

import pytest

from trainer_runtime.core.policy.range_test import RisingLoss, means_of, suggest

# Of a hundred steps from 1e-6 to 1.
RATES = [10 ** (-6 + 6 * step / 100) for step in range(1, 101)]


def falling(*, fastest: float, until: float, rises: bool = True) -> list[float]:
    """Losses that fall most steeply at the rate `fastest`, and rise from `until` on."""
    losses = []
    for rate in RATES:
        fallen = 4 / (1 + (fastest / rate) ** 2)
        beyond = max(0.0, math.log10(rate / until))
        losses.append(6 - fallen + (5 * beyond**2 if rises else 0.0))
    return losses


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        (falling(fastest=1e-3, until=0.1), (1e-3, 1e-3)),
        # So near to the lowest loss that the rate keeps a tenth away from it.
        (falling(fastest=1e-2, until=3e-2), (5e-3, 1e-2)),
        # Noise of a tenth moves neither far.
        (
            [
                loss + 0.1 * (-1) ** step
                for step, loss in enumerate(falling(fastest=1e-3, until=0.1))
            ],
            (1e-3, 1e-3),
        ),
        # What the loss was when it had diverged counts for nothing.
        (
            [*falling(fastest=1e-4, until=1e-2)[:80], *[1e9] * 19, math.nan],
            (1e-4, 1e-4),
        ),
    ],
)
def test_the_suggested_rate_is_that_of_the_fastest_fall_a_decade_below_the_lowest_loss(
    losses: list[float], expected: tuple[float, float]
) -> None:
    suggestion = suggest(RATES, losses)
    assert suggestion is not None
    lr, steepest = expected
    assert suggestion.lr == pytest.approx(lr, rel=0.5)
    assert suggestion.steepest == pytest.approx(steepest, rel=0.5)
    assert suggestion.lr <= 0.101 * suggestion.lowest


@pytest.mark.parametrize(
    "losses",
    [
        [5.0] * 100,
        [5.0 + step / 50 for step in range(100)],
        [5.0 + 0.04 * (-1) ** step for step in range(100)],
        [math.nan] * 100,
    ],
)
def test_a_loss_that_never_fell_suggests_no_rate(losses: list[float]) -> None:
    assert suggest(RATES, losses) is None


def test_a_few_points_suggest_no_rate() -> None:
    assert suggest(RATES[:9], falling(fastest=1e-3, until=0.1)[:9]) is None


def test_a_mean_lags_behind_no_point() -> None:
    assert means_of([float(n) for n in range(9)])[2:7] == [2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize(
    ("losses", "diverges_at"),
    [
        ([6.0, 5.0, 4.0, 3.0, 9.0, 8.0], None),
        ([6.0, 5.0, 4.0, 3.0, 30.0, 60.0], 5),
        ([6.0, 5.0, math.nan], 2),
        ([6.0, math.inf], 1),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.9, 0.9, 0.9], 6),
    ],
)
def test_a_test_ends_once_its_loss_has_diverged(
    losses: list[float], diverges_at: int | None
) -> None:
    rising = RisingLoss()
    ends = [at for at, loss in enumerate(losses) if rising.has_diverged(loss)]
    assert (ends or [None])[0] == diverges_at

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime.core.protocol.duration import format_duration, parse_duration
from trainer_runtime.core.protocol.figures import spoken_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("24h", 86400), ("1d", 86400), ("1h30m", 5400), ("1.5h", 5400)],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0s", "0m", "10", "-5m", "m", "10 m", "30m1h", "24:00:00", "1w", "1e3s", "٣m"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.integers(1, 10**9))
def test_whole_seconds_survive_being_written_and_read(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


def test_the_largest_unit_that_is_exact_is_written() -> None:
    written = [format_duration(s) for s in (0.2, 59, 60, 5400, 7200, 86400, 90000)]
    assert written == ["1s", "59s", "1m", "90m", "2h", "1d", "25h"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (7200, "2 h"),
        (86_399, "23 h 59 min"),
        (360_000, "4 d 4 h"),
    ],
)
def test_durations_are_spoken_in_at_most_two_units(seconds: float, text: str) -> None:
    assert spoken_duration(seconds) == text

"""What is drawn stands out from its ground, in both palettes."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.metrics.plots.palette import DARK, LIGHT

_LEAST_CONTRAST = 3.0


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_every_curve_and_mark_stands_out_from_its_ground(palette: Any) -> None:
    for colour in (*palette.series, *palette.marks.values(), palette.ink, palette.faint):
        assert _contrast(colour, palette.ground) >= _LEAST_CONTRAST, colour


def _contrast(one: str, other: str) -> float:
    """The ratio of luminances, as WCAG 2 defines it."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

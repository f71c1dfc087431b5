"""The colours of curves and marks, on paper and on screens, light and dark.

The series are Okabe and Ito's colours (https://jfly.uni-koeln.de/color), which colour-blind people
can distinguish, darkened or lightened to a contrast of at least 3 with their ground.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Palette:
    """`series`: by the order of curves; `marks`: by what they mark."""

    ground: str
    ink: str
    faint: str
    grid: str
    series: tuple[str, ...]
    marks: Mapping[str, str]


LIGHT = Palette(
    ground="#ffffff",
    ink="#1a1e27",
    faint="#5d6677",
    grid="#e4e8ee",
    series=(
        "#0072b2",
        "#d0560a",
        "#00845f",
        "#b4548f",
        "#a87400",
        "#2f86bf",
        "#3c4350",
        "#7b6a2c",
    ),
    marks={
        "restart": "#5d6677",
        "phase": "#6a4fb3",
        "warning": "#a06400",
        "critical": "#c2182b",
        "checkpoint": "#00845f",
    },
)
DARK = Palette(
    ground="#151a21",
    ink="#e8ecf3",
    faint="#98a3b5",
    grid="#262d38",
    series=(
        "#5ab4ee",
        "#ff9a5c",
        "#35cf9f",
        "#eaa3cf",
        "#f0c24d",
        "#a3bcff",
        "#d7dce5",
        "#c9b271",
    ),
    marks={
        "restart": "#98a3b5",
        "phase": "#b39dff",
        "warning": "#f0b341",
        "critical": "#ff6b76",
        "checkpoint": "#35cf9f",
    },
)


def stylesheet() -> str:
    """Both as variables of CSS: the dark one where the page or the reader's system is dark."""
    light, dark = _variables(LIGHT), _variables(DARK)
    return (
        f":root {{ {light} }}\n"
        "@media (prefers-color-scheme: dark) {"
        f' :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}\n'
    )


def _variables(palette: Palette) -> str:
    named = {
        "plot-ground": palette.ground,
        "plot-ink": palette.ink,
        "plot-faint": palette.faint,
        "plot-grid": palette.grid,
        **{f"series-{at}": colour for at, colour in enumerate(palette.series)},
        **{f"mark-{kind}": colour for kind, colour in palette.marks.items()},
    }
    return " ".join(f"--{name}: {value};" for name, value in named.items())

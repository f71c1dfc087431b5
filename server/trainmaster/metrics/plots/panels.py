"""Assigns curves to panels, and labels the axes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from trainer_runtime.core.records import dataclass
from trainmaster.metrics.plots.curves import Mark, RunCurves
from trainmaster.metrics.plots.sketch import Points
from trainmaster.metrics.telemetry import is_telemetry
from trainmaster.words.answers.plot import Axis

# The first key of each that has points is drawn, `val_loss` in the panel of `loss`.
_STANDARD = (
    ("loss",),
    ("rewards/margins", "margin", "reward"),
    ("lr",),
    ("grad_norm",),
    ("tokens_per_s", "samples_per_s", "step_time_s"),
    ("gpu_util", "cpu_util"),
    ("gpu_mem_gib", "host_mem_gib"),
)
STANDARD_KEYS = ("val_loss", *(key for keys in _STANDARD for key in keys))
MOST_PANELS = 12
_AXES = {"step": "step", "tokens": "tokens", "time": "minutes"}
_UNITS = {
    "tokens_per_s": "tokens / s",
    "samples_per_s": "samples / s",
    "step_time_s": "step time, s",
    "gpu_util": "GPU, %",
    "gpu_mem_gib": "GPU memory, GiB",
    "gpu_power_w": "GPU, W",
    "gpu_temp_c": "GPU, °C",
    "cpu_util": "CPU, %",
    "host_mem_gib": "memory, GiB",
    "disk_free_gib": "disk free, GiB",
    "net_mib_s": "network, MiB / s",
    "lr": "learning rate",
    "grad_norm": "gradient norm",
}


@dataclass(frozen=True, slots=True)
class Panel:
    """The curves of `keys`. `moments`: x is a time, drawn as `per_minute` times its minutes."""

    keys: tuple[str, ...]
    title: str
    x_label: str
    moments: bool
    per_minute: float = 1.0

    def along(self, points: Points) -> Points:
        """The points of a series in the units of this panel."""
        if self.per_minute == 1.0:
            return points
        return [(x * self.per_minute, value) for x, value in points]

    def place(self, mark: Mark) -> float | None:
        """The place of a mark; None if unknown."""
        return mark.minute * self.per_minute if self.moments else mark.x


def panels_of(runs: Sequence[RunCurves], keys: Sequence[str], axis: Axis) -> list[Panel]:
    """The panels in reading order: one per given key, else the standard ones with data."""
    present = {key for run in runs for key in run.series}
    return _timed(panels_among(present, axis, keys or None), runs)


def panels_among(
    present: Collection[str], axis: Axis, keys: Sequence[str] | None = None
) -> list[Panel]:
    """One panel per given key; None: the standard ones of which a key is present."""
    if keys is not None:
        return [_panel((key,), axis) for key in keys]
    chosen = [next((key for key in among if key in present), None) for among in _STANDARD]
    panels = [_panel((key,), axis) for key in chosen if key is not None]
    if "val_loss" not in present:
        return panels
    rest = panels[1:] if "loss" in present else panels
    losses = ("loss", "val_loss") if "loss" in present else ("val_loss",)
    return [_panel(losses, axis), *rest]


def _timed(panels: Sequence[Panel], runs: Sequence[RunCurves]) -> list[Panel]:
    """In seconds, where everything drawn over time took less than a minute."""
    times = [panel for panel in panels if panel.moments]
    ends = [
        run.series[key][-1][0]
        for panel in times
        for run in runs
        for key in panel.keys
        if key in run.series
    ]
    if not 0 < max(ends, default=0.0) < 1.0:
        return list(panels)
    return [
        replace(panel, x_label="seconds", per_minute=60.0) if panel.moments else panel
        for panel in panels
    ]


def _panel(keys: tuple[str, ...], axis: Axis) -> Panel:
    moments = axis == "time" or is_telemetry(keys[0])
    title = _UNITS.get(keys[0], keys[0])
    return Panel(keys, title, "minutes" if moments else _AXES[axis], moments)

"""Assigns curves to panels, and labels the axes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from trainmaster.answers.plot import Axis
from trainmaster.metrics.plots.curves import Mark, RunCurves
from trainmaster.metrics.plots.sketch import Points
from trainmaster.metrics.telemetry import is_telemetry

# A panel: keys that are drawn together; of several such tuples the first with points is drawn.
# Evaluations (`val_…`) of its keys are drawn in the same panel.
_Choice = tuple[tuple[str, ...], ...]

# What matters most in a method, by a metric that only it reports: programs, attached trainings
# and log files don't say their method. The rewards come before GRPO's loss, which says little.
_METHODS: tuple[tuple[tuple[str, ...], tuple[_Choice, ...]], ...] = (
    (
        ("reward", "reward_std"),
        (
            (("reward",),),
            (("kl",), ("objective/kl",)),
            (("completions/mean_length",), ("completion_length",)),
            (("loss",),),
            (("entropy",),),
        ),
    ),
    (
        ("rewards/margins", "rewards/chosen", "margin"),
        (
            (("loss",),),
            (("rewards/margins",), ("margin",)),
            (("rewards/accuracies",), ("accuracy",)),
            (("rewards/chosen", "rewards/rejected"),),
            (("logps/chosen", "logps/rejected"),),
            (("kl",),),
        ),
    ),
    (
        ("mean_token_accuracy",),
        ((("loss",),), (("mean_token_accuracy",),), (("entropy",),)),
    ),
)
_PRETRAINING: tuple[_Choice, ...] = ((("loss",),), (("mfu",),))
_OF_ALL: tuple[_Choice, ...] = (
    (("lr",),),
    (("grad_norm",),),
    (("tokens_per_s",), ("samples_per_s",), ("step_time_s",)),
    (("gpu_util",), ("cpu_util",)),
    (("gpu_mem_gib",), ("host_mem_gib",)),
)
_DRAWN = [
    key
    for choice in (*(one for _, of in _METHODS for one in of), *_PRETRAINING, *_OF_ALL)
    for keys in choice
    for key in keys
]
STANDARD_KEYS = tuple(dict.fromkeys((*_DRAWN, *(f"val_{key}" for key in _DRAWN))))
MOST_PANELS, _MOST_STANDARD = 12, 16
_AXES = {"step": "step", "tokens": "tokens", "time": "minutes"}
_TITLES = {
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
    "noise_scale": "gradient noise scale, tokens",
    "kl": "KL divergence",
    "mean_token_accuracy": "token accuracy",
    "completions/mean_length": "completion length, tokens",
    "rewards/margins": "reward margin",
    "rewards/accuracies": "reward accuracy",
}
_TOGETHER = {"rewards/chosen": "rewards", "logps/chosen": "log probabilities"}


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
    return _timed(panels_among(present, axis, keys or None, compared=len(runs) > 1), runs)


def panels_among(
    present: Collection[str],
    axis: Axis,
    keys: Sequence[str] | None = None,
    *,
    compared: bool = False,
) -> list[Panel]:
    """One panel per given key; None: those of the methods whose metrics are present, and what is
    worth a panel in all trainings. `compared`: each key has a panel of its own, since the styles of
    its curves distinguish runs."""
    if keys is not None:
        return [_panel((key,), axis) for key in keys]
    chosen = [_present(choice, present) for choice in _choices(present)]
    parted = [part for keys in chosen for part in (_parts(keys) if compared else [keys])]
    return [_panel(keys, axis) for keys in dict.fromkeys(parted) if keys][:_MOST_STANDARD]


def _choices(present: Collection[str]) -> Sequence[_Choice]:
    """Those of every method whose metrics are present, and those of all trainings."""
    metrics = {key.removeprefix("val_") for key in present}
    of_methods = [
        choice for signs, choices in _METHODS if metrics.intersection(signs) for choice in choices
    ]
    return [*(of_methods or _PRETRAINING), *_OF_ALL]


def _present(choice: _Choice, present: Collection[str]) -> tuple[str, ...]:
    """The keys to draw, each followed by its evaluation; none where no alternative has points."""
    for keys in choice:
        with_evaluations = [name for key in keys for name in (key, f"val_{key}") if name in present]
        if with_evaluations:
            return tuple(with_evaluations)
    return ()


def _parts(keys: Sequence[str]) -> list[tuple[str, ...]]:
    """The keys one by one, each with its evaluation."""
    bare = dict.fromkeys(key.removeprefix("val_") for key in keys)
    return [tuple(key for key in keys if key.removeprefix("val_") == name) for name in bare]


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
    name = keys[0].removeprefix("val_")
    title = _TOGETHER.get(name) if len(_parts(keys)) > 1 else _TITLES.get(name)
    title = title or keys[0]
    return Panel(keys, title, "minutes" if moments else _AXES[axis], moments)

"""`lr-test`: a short run in which the learning rate rises, and the rate that its losses suggest."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from trainer_runtime.core.config.lr_schedule import RANGE_TEST
from trainer_runtime.core.policy.range_test import (
    FEWEST_POINTS,
    RULE,
    Suggestion,
    means_of,
    suggest,
)
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import rounded
from trainmaster.answers.lr_test import LrTestAnswer
from trainmaster.answers.runs import LaunchAnswer
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.plots.curves import Mark, RunCurves
from trainmaster.metrics.plots.panels import Panel
from trainmaster.metrics.plots.sketch import Points, plain
from trainmaster.metrics.run_series import run_points
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.spec import TrainingSpec, load_spec
from trainmaster.plan.spec.load import spec_path
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.metrics.plot import sketched, write_png
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

LABEL = "lr_test"
LOWEST_RATE, HIGHEST_RATE, STEPS = 1e-6, 1.0, 100
_MOST_ROWS = 13
_PANEL = Panel(("loss",), "loss", "log10 of the learning rate", moments=False)


async def launch_lr_test(
    workspace: Workspace,
    spec: str,
    *,
    host: str | None = None,
    sets: Sequence[str] = (),
    rates: tuple[float, float] = (LOWEST_RATE, HIGHEST_RATE),
    steps: int = STEPS,
) -> LaunchAnswer:
    """Start a run of the spec whose rate rises over `steps` from the first of `rates` to the other.

    Raises:
        UsageError: `BAD_ARGUMENT`, `UNSUPPORTED` for a program.
        TrainmasterError: as `launch` does.
    """
    lowest, highest = rates
    if not 0 < lowest < highest or steps < FEWEST_POINTS:
        raise UsageError(
            "BAD_ARGUMENT",
            f"A test from {lowest:g} to {highest:g} in {steps} steps can't be.",
            f"Give rates above 0 that rise, and at least {FEWEST_POINTS} steps.",
            field="--steps" if steps < FEWEST_POINTS else "--from",
        )
    loaded = load_spec(spec, sets)
    if framework_of(loaded).runs_program:
        raise UsageError(
            "UNSUPPORTED",
            "The learning rate of a program is its own, so that no test can raise it.",
            "Compare short runs of it with several rates, which its own arguments name.",
            field="framework",
        )
    changes = _sets(loaded, lowest / highest, highest, steps)
    return await launch(workspace, spec, host=host, sets=[*sets, *changes])


async def report_lr_test(
    workspace: Workspace,
    run: str,
    *,
    spec: str | None = None,
    path: Path | None = None,
    dots: bool = False,
    width: int = 64,
) -> LrTestAnswer:
    """What a test has measured so far. `spec`: where a patch is for, as it was given; `path`: of a
    PNG to draw into, else the answer has the curve's `lines`.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        UsageError: `BAD_ARGUMENT`, the run is not such a test, or the path can't be written.
    """
    view = await refresh(workspace, run)
    config = view.run.config
    if not config.schedule.is_range_test:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{view.run.run_id} is not a learning-rate test.",
            f"Start one: {command('lr-test', 'SPEC')}.",
            field="--report",
        )
    by_step = dict(run_points(workspace, view, "lr"))
    points = [(by_step[x], y) for x, y in run_points(workspace, view, "loss") if x in by_step]
    suggestion = suggest([rate for rate, _ in points], [loss for _, loss in points])
    finite = [(rate, loss) for rate, loss in points if math.isfinite(loss)]
    rows = _thinned(finite)
    answer = LrTestAnswer(
        run_id=view.run.run_id,
        steps=len(points),
        target_steps=config.steps,
        rates=[rounded(rate, 2) for rate, _ in rows],
        losses=[rounded(loss, 4) for _, loss in rows],
        rule=RULE,
        next_step=_next_step(suggestion, spec),
    )
    if suggestion is not None:
        patch = {"optimizer.lr": suggestion.lr}
        answer = answer.model_copy(
            update={
                "lr": suggestion.lr,
                "steepest": suggestion.steepest,
                "lowest": suggestion.lowest,
                "set": patch,
                "expected": {"optimizer.lr": _rate_of_spec(view)},
            }
        )
    curves = _curves(view.run.run_id, finite, suggestion)
    if path is not None:
        await write_png(path, [curves], [_PANEL])
        return answer.model_copy(update={"path": str(path)})
    lines = sketched(_PANEL, [curves], dots=dots, width=width)
    return answer.model_copy(update={"lines": [plain(line) for line in lines]})


def _sets(spec: TrainingSpec, ratio: float, highest: float, steps: int) -> list[str]:
    """What makes a range test of the spec: everything else of it stays."""
    schedule = {"kind": RANGE_TEST, "min_lr_ratio": ratio, "warmup_steps": 0}
    changes = {
        "optimizer.lr": highest,
        "schedule": schedule,
        "steps": steps,
        "tokens": None,
        "phases": None,
        "batch.ramp": None,
        "eval.every_steps": steps,
        "eval.samples": None,
        "checkpoint.every": steps,
        f"labels.{LABEL}": str(spec.optimizer.lr),
    }
    if "epochs" in spec.method_args:
        changes["method_args"] = {k: v for k, v in spec.method_args.items() if k != "epochs"}
    return [f"{path}={json.dumps(value)}" for path, value in changes.items()]


def _rate_of_spec(view: RunView) -> float | str | None:
    """`optimizer.lr` of the spec that the test was made from."""
    rate = view.run.labels.get(LABEL)
    try:
        return float(rate) if rate is not None else None
    except ValueError:
        return str(rate)


def _next_step(suggestion: Suggestion | None, spec: str | None) -> str:
    spec = "SPEC" if spec is None or spec_path(spec) is None else spec
    if suggestion is None:
        return "Test again with a higher end, or over more steps: " + command(
            "lr-test", spec, "--to", "10", "--steps", 2 * STEPS
        )
    return command("launch", spec, "--set", f"optimizer.lr={suggestion.lr:g}")


def _thinned(points: Points) -> list[tuple[float, float]]:
    """Evenly many of them, each with the mean loss of its neighbours."""
    means = means_of([loss for _, loss in points])
    most = min(len(points), _MOST_ROWS)
    places = [(at + 1) * len(points) // most - 1 for at in range(most)]
    return [(points[at][0], means[at]) for at in places]


def _curves(run_id: str, points: Points, suggestion: Suggestion | None) -> RunCurves:
    """The losses over the rates' logarithms, up to where the loss has risen as far as it fell."""
    highest = 0.0
    if points:
        losses = means_of([loss for _, loss in points])
        highest = 2 * max(losses[0], points[0][1]) - min(losses)
    shown = [(math.log10(rate), min(loss, highest)) for rate, loss in points]
    marks = []
    if suggestion is not None:
        at = math.log10(suggestion.lr)
        marks.append(Mark("phase", at, 0.0, f"suggested {suggestion.lr:g}"))
    return RunCurves(run_id, {"loss": shown}, marks)

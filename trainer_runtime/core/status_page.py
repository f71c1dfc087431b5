"""`training_status.md`: one page that a person reads in a minute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from trainer_runtime.core.checkpoint_index import CheckpointIndex
from trainer_runtime.core.duration import spoken_duration
from trainer_runtime.core.journal import AttemptRecord, Record
from trainer_runtime.core.lineage import is_live
from trainer_runtime.core.progress import Progress
from trainer_runtime.core.protocol import ATTACHED, number
from trainer_runtime.core.states import ENDED_PLACEMENTS, PlacementState

_BAR_WIDTH = 30
_NEWEST_CHECKPOINTS = 8


def render_status(
    record: Record,
    attempts: Sequence[Progress],
    index: CheckpointIndex,
    config: Mapping[str, Any],
    now: float,
) -> str:
    """The page as Markdown, from what the supervisor knows at `now` (Unix seconds)."""
    newest = newest_progress(attempts)
    sections = [
        _head(record, newest, config, now),
        _figures(newest, attempts, record),
        _checkpoints(index, now),
        _attempts(record, attempts, now),
        _risks(record, newest, index, now),
    ]
    return "\n".join(section for section in sections if section) + "\n"


def newest_progress(attempts: Sequence[Progress]) -> Progress | None:
    """The newest attempt that has come to a start, else the newest at all."""
    started = [progress for progress in attempts if progress.started_at_step is not None]
    candidates = started or list(attempts)
    return candidates[-1] if candidates else None


def best_losses(attempts: Sequence[Progress]) -> dict[str, tuple[float, int]]:
    """The lowest validation losses, as (value, step), of what no later attempt superseded."""
    started_at = {
        progress.attempt: progress.started_at_step
        for progress in attempts
        if progress.started_at_step is not None
    }
    best: dict[str, tuple[float, int]] = {}
    for progress in attempts:
        for key, found in progress.best.items():
            if is_live(progress.attempt, found[1], started_at):
                best[key] = min(best.get(key, found), found)
    return best


def eta_s(progress: Progress | None) -> float | None:
    """Seconds to the target step at the present pace; None while that isn't known."""
    if progress is None or progress.step_time_s is None or progress.target_step is None:
        return None
    return max(0, progress.target_step - progress.step) * progress.step_time_s


def _head(record: Record, newest: Progress | None, config: Mapping[str, Any], now: float) -> str:
    lines = [f"# {config['name']}", ""]
    state = f"**{record.state.value}**"
    if record.reason:
        state += f" ({record.reason}{': ' + record.detail if record.detail else ''})"
    lines.append(f"- State: {state}, as of {_clock_time(now)}")
    lines.append(f"- Progress: {_progress(newest, config)}")
    remaining = eta_s(newest)
    if remaining is not None and record.state is PlacementState.RUNNING:
        lines.append(f"- Time left: about {spoken_duration(remaining)}")
    model = "" if config["framework"] == ATTACHED else f", {_model_words(newest)}"
    lines.append(f"- Run: `{config['run_id']}`, {config['framework']}{model}")
    return "\n".join(lines) + "\n"


def _progress(newest: Progress | None, config: Mapping[str, Any]) -> str:
    told = newest.target_step if newest is not None else None
    target = config["steps"] if told is None else told
    step = newest.step if newest else 0
    if not target:  # of a training that others started
        return f"step {step:,}"
    return f"`{_bar(step / target)}` step {step:,} of {target:,}"


def _model_words(newest: Progress | None) -> str:
    if newest is None or not newest.described:
        return "not started yet"
    described = newest.described
    words = f"{int(described.get('parameters', 0)):,} parameters"
    return f"{words}, {described.get('precision', '?')} on {described.get('device', '?')}"


def _figures(newest: Progress | None, attempts: Sequence[Progress], record: Record) -> str:
    if newest is None or not newest.last:
        return ""
    shown = ("loss", "val_loss", "lr", "grad_norm", "tokens_per_s", "step_time_s", "mfu")
    rows = [(key, newest.last[key]) for key in shown if key in newest.last]
    rows += [
        (f"best {key}", f"{value:.4f} at step {step:,}")
        for key, (value, step) in sorted(best_losses(attempts).items())
    ]
    for key in ("cpu_util", "host_mem_gib", "disk_free_gib", "gpu_util", "gpu_mem_gib"):
        if key in record.telemetry:
            rows.append((key, record.telemetry[key]))
    body = "\n".join(f"| {key} | {_shown(value)} |" for key, value in rows)
    return f"## Figures\n\n| metric | value |\n|---|---|\n{body}\n"


def _checkpoints(index: CheckpointIndex, now: float) -> str:
    if not index.entries and not index.skipped:
        return ""
    lines = ["## Checkpoints", ""]
    resume = "from the start" if index.resume_from is None else f"step {index.resume_from:,}"
    lines.append(f"A resume would go on {'' if index.resume_from is None else 'from '}{resume}.")
    lines += ["", "| step | age | MiB | verified | tags |", "|---|---|---|---|---|"]
    for entry in index.entries[-_NEWEST_CHECKPOINTS:]:
        verified = {True: "yes", False: "DAMAGED", None: "not yet"}[entry.verified]
        size = f"{entry.size_bytes / 2**20:,.1f}"
        age, tags = spoken_duration(now - entry.time), " ".join(entry.tags)
        lines.append(f"| {entry.step:,} | {age} | {size} | {verified} | {tags} |")
    lines += [f"\nPassed over: step {step:,}: {reason}" for step, reason in index.skipped]
    return "\n".join(lines) + "\n"


def _attempts(record: Record, attempts: Sequence[Progress], now: float) -> str:
    if not record.attempts:
        return ""
    lines = [
        "## Attempts",
        "",
        "| no. | for | from | to | lasted | end |",
        "|---|---|---|---|---|---|",
    ]
    found = {progress.attempt: progress for progress in attempts}
    lines += [
        _attempt_row(attempt, found.get(attempt.number), now) for attempt in record.attempts[-20:]
    ]
    last_words = record.attempts[-1].last_words
    if last_words and record.state is PlacementState.FAILED:
        lines.append(f"\nThe log's last line: `{last_words.replace('`', chr(39))}`")
    return "\n".join(lines) + "\n"


def _attempt_row(attempt: AttemptRecord, progress: Progress | None, now: float) -> str:
    end = attempt.state.value if attempt.reason is None else attempt.reason
    if attempt.detail:
        end += f": {attempt.detail}"
    start = last = ""
    if progress is not None and progress.started_at_step is not None:
        start, last = f"{progress.started_at_step:,}", f"{progress.step:,}"
    why, lasted = attempt.why, spoken_duration(attempt.seconds(now))
    return f"| {attempt.number} | {why} | {start} | {last} | {lasted} | {end.replace('|', '/')} |"


def _risks(record: Record, newest: Progress | None, index: CheckpointIndex, now: float) -> str:
    risks = []
    if record.state in ENDED_PLACEMENTS or newest is None:
        return ""
    if any(entry.verified is False for entry in index.entries):
        risks.append("A checkpoint is damaged; the one before it would be taken.")
    if index.resume_from is None and newest.steps_done:
        risks.append("No verified checkpoint yet: a crash now loses everything.")
    if record.mirror_problem is not None:
        risks.append(f"Checkpoints have no second copy: {record.mirror_problem}")
    for warning in newest.warnings[-3:]:
        risks.append(f"{warning['code']} at step {warning['step']}.")
    if not risks:
        return ""
    return "## Risks\n\n" + "\n".join(f"- {risk}" for risk in risks) + "\n"


def _bar(share: float) -> str:
    filled = round(_BAR_WIDTH * min(1.0, max(0.0, share)))
    return "#" * filled + "." * (_BAR_WIDTH - filled) + f" {100 * share:.0f} %"


def _shown(value: Any) -> str:
    parsed = number(value)
    if parsed is None or not math.isfinite(parsed):
        return str(value)
    if abs(parsed) >= 1000:
        return f"{parsed:,.0f}"
    return f"{parsed:.4g}"


def _clock_time(now: float) -> str:
    return datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")

"""`training_status.md`: one page that a person reads in a minute."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainer_runtime.core.checkpoints.checkpoint_index import CheckpointIndex, kept_until
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.protocol.best_metric import badness
from trainer_runtime.core.protocol.command import command, names_command
from trainer_runtime.core.protocol.curve import merged, sparkline
from trainer_runtime.core.protocol.figures import (
    in_utc,
    number_text,
    share_text,
    size_text,
    spoken_duration,
)
from trainer_runtime.core.protocol.finding import Finding, Patch
from trainer_runtime.core.protocol.journal import AttemptRecord, Record
from trainer_runtime.core.protocol.lineage import lineage_of
from trainer_runtime.core.protocol.lines import ATTACHED, number
from trainer_runtime.core.protocol.progress import Progress, newest_progress
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS, PlacementState
from trainer_runtime.core.status.eta import eta_s
from trainer_runtime.core.status.past_findings import is_over, over_in_words, past_findings
from trainer_runtime.core.status.phase_state import phase_state
from trainer_runtime.core.status.reckoning import reckon
from trainer_runtime.core.status.risks import risks

_MOST_FINDINGS = 6
_MOST_REMEDIES = 3
_MOST_PAST = 8
_LONGEST_EVIDENCE = 200
_GRAVEST_FIRST = {"critical": 0, "warning": 1, "info": 2}
_WHERE = "Commands are for the machine that this run was launched from."
Worded = Callable[[str], str]
_BAR_WIDTH = 30
_CURVE_WIDTH = 48
_NEWEST_CHECKPOINTS = 8


def render_status(
    record: Record,
    attempts: Sequence[Progress],
    index: CheckpointIndex,
    config: RunConfig,
    now: float,
    worded: Callable[[str], str] | None = None,
    *,
    since_t: float | None = None,
) -> str:
    """The page as Markdown, from what the supervisor knows at `now` (Unix seconds).

    `worded` gives advice with its commands as they can be called where the page is shown; None on
    the host, where they can't be. `since_t`: when the run was requested, where that is known.

    What matters most comes first: state, curve and figures, what is wrong and what to do about it,
    what may go wrong, and only then the lists.
    """
    newest = newest_progress(attempts)
    sections = [
        _head(record, attempts, config, now) + _time(record, attempts, now, since_t),
        _figures(newest, attempts, record, config),
        findings_section(record, newest, config, worded),
        _risks(record, newest, index, config, now),
        _checkpoints(index, now),
        _attempts(record, attempts, now),
    ]
    return "\n".join(section for section in sections if section) + "\n"


def best_evaluations(attempts: Sequence[Progress]) -> dict[str, tuple[float, int]]:
    """The best of each rated metric, as (value, step), of what no later attempt superseded."""
    lineage = lineage_of(attempts)
    best: dict[str, tuple[float, int]] = {}
    for progress in attempts:
        for key, evaluation in progress.best.items():
            if lineage.is_live(progress.attempt, evaluation[1]):
                best_so_far = best.get(key, evaluation)
                best[key] = min(
                    best_so_far, evaluation, key=lambda pair: (badness(key, pair[0]), pair[1])
                )
    return best


def run_risks(
    record: Record,
    newest: Progress | None,
    index: CheckpointIndex,
    config: RunConfig,
    now: float,
) -> list[str]:
    """What may still go wrong, the gravest first; nothing before a run begins or after its end."""
    if record.state in ENDED_PLACEMENTS or newest is None:
        return []
    remaining = eta_s(newest, None, Curriculum.of(config))
    return risks(record, newest, index, config, now, remaining)


def loss_curve(attempts: Sequence[Progress], most: int) -> list[float | None]:
    """The training losses that no later attempt superseded, in at most `most` means."""
    lineage = lineage_of(attempts)
    values: list[float | None] = []
    for progress in attempts:
        until = lineage.live_until(progress.attempt)
        values += [value for _, value in progress.losses.until(until)]
    return merged(values, most)


def _head(record: Record, attempts: Sequence[Progress], config: RunConfig, now: float) -> str:
    newest = newest_progress(attempts)
    state = f"**{record.state.value}**"
    if record.reason:
        state += f" ({record.reason}{': ' + record.detail if record.detail else ''})"
    lines = [
        f"# {config.name}",
        "",
        f"- State: {state}, as of {in_utc(now)}",
        f"- Progress: {_progress(newest, config)}",
    ]
    remaining = eta_s(newest, now, Curriculum.of(config))
    if remaining is not None and record.state is PlacementState.RUNNING:
        rule = config.evaluation.early_stopping
        early = "" if rule is None else f", or less: it ends {rule.words}"
        lines.append(
            f"- Time left: about {spoken_duration(remaining)}, until "
            f"{in_utc(now + remaining)}{early}"
        )
    phase = phase_state(config, attempts)
    if phase is not None:
        lines.append(f"- Phase: {phase.words}")
    elif newest is not None and newest.phase is not None:
        lines.append(f"- Phase: {newest.phase}")
    ours = config.framework != ATTACHED and config.script is None
    model = f", {_model_words(newest)}" if ours else ""
    lines.append(f"- Run: `{config.run_id}`, {config.framework}{model}")
    return "\n".join(lines) + "\n"


def _time(record: Record, attempts: Sequence[Progress], now: float, since_t: float | None) -> str:
    words = reckon(record, attempts, now, since_t).words if record.attempts else None
    return "" if words is None else f"- Time: {words}\n"


def _progress(newest: Progress | None, config: RunConfig) -> str:
    reported = newest.target_step if newest is not None else None
    target = config.steps or reported
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


def _figures(
    newest: Progress | None,
    attempts: Sequence[Progress],
    record: Record,
    config: RunConfig,
) -> str:
    curve = loss_curve(attempts, _CURVE_WIDTH)
    lines = [f"Loss `{sparkline(curve)}`\n"] if curve else []
    lines += [
        f"- {name}: {words}"
        for name, words in (
            ("Last", _last(newest)),
            ("Best", _best(attempts, config.checkpoint.metric)),
            ("Speed", _speed(newest)),
            ("GPU", _gpu(record.telemetry)),
            ("Machine", _words(record.telemetry, _MACHINE)),
        )
        if words
    ]
    return "## Figures\n\n" + "\n".join(lines) + "\n" if lines else ""


def _last(newest: Progress | None) -> str:
    values = newest.last if newest is not None else {}
    shown = ("loss", "val_loss", "rewards/margins", "margin", "reward", "lr", "grad_norm")
    return ", ".join(f"{key} {_shown(values[key])}" for key in shown if key in values)


def _best(attempts: Sequence[Progress], metric: str | None) -> str:
    """Of the losses, and of the metric that the best checkpoint is chosen by."""
    return ", ".join(
        f"{key} {number_text(value)} at step {step:,}"
        for key, (value, step) in sorted(best_evaluations(attempts).items())
        if key == metric or key.startswith("val_loss")
    )


# Key, what stands before and behind its value.
_SPEED = (("tokens_per_s", "", " tokens/s"), ("step_time_s", "", " s a step"))
_GPU = (
    ("gpu_util", "", " % busy"),
    ("gpu_mem_gib", "", " GiB"),
    ("gpu_power_w", "", " W"),
    ("gpu_temp_c", "", " °C"),
    ("gpu_clock_mhz", "", " MHz"),
)
_MACHINE = (
    ("cpu_util", "CPU ", " %"),
    ("host_mem_gib", "memory ", " GiB"),
    ("disk_free_gib", "disk ", " GiB free"),
)


def _speed(newest: Progress | None) -> str:
    values = newest.last if newest is not None else {}
    words = _words(values, _SPEED)
    share = number(values.get("mfu"))
    return words if share is None else f"{words}, MFU {share_text(share, 1)}"


def _gpu(telemetry: Mapping[str, object]) -> str:
    words = _words(telemetry, _GPU)
    count = sum(key.startswith("gpu_util/") for key in telemetry)
    return f"{words}, mean of {count}" if words and count > 1 else words


def _words(values: Mapping[str, object], wanted: Sequence[tuple[str, str, str]]) -> str:
    return ", ".join(
        f"{before}{_shown(values[key])}{behind}" for key, before, behind in wanted if key in values
    )


def _checkpoints(index: CheckpointIndex, now: float) -> str:
    if not index.entries and not index.skipped:
        return ""
    lines = ["## Checkpoints", ""]
    resume = "the start" if index.resume_from is None else f"step {index.resume_from:,}"
    lines.append(f"A resume would continue from {resume}.")
    lines += ["", "| step | age | size | verified | tags |", "|---|---|---|---|---|"]
    for entry in index.entries[-_NEWEST_CHECKPOINTS:]:
        verified = {True: "yes", False: "DAMAGED", None: "not yet"}[entry.verified]
        size = size_text(entry.size_bytes)
        age, tags = spoken_duration(now - entry.time), " ".join(entry.tags)
        lines.append(f"| {entry.step:,} | {age} | {size} | {verified} | {tags} |")
    lines += [f"\nPassed over: step {step:,}: {reason}" for step, reason in index.skipped]
    if index.superseded:
        lines.append(f"\nSuperseded checkpoints: {kept_until(index.kept_superseded)}")
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
    progress_by_number = {progress.attempt: progress for progress in attempts}
    lines += [
        _attempt_row(attempt, progress_by_number.get(attempt.number), now)
        for attempt in record.attempts[-20:]
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


def _risks(
    record: Record,
    newest: Progress | None,
    index: CheckpointIndex,
    config: RunConfig,
    now: float,
) -> str:
    risks = run_risks(record, newest, index, config, now)
    return "## Risks\n\n" + "\n".join(f"- {risk}" for risk in risks) + "\n" if risks else ""


def _bar(share: float) -> str:
    filled = round(_BAR_WIDTH * min(1.0, max(0.0, share)))
    return "#" * filled + "." * (_BAR_WIDTH - filled) + f" {share_text(share)}"


def _shown(value: Any) -> str:
    parsed = number(value)
    return str(value) if parsed is None else number_text(parsed)


def findings_section(
    record: Record, newest: Progress | None, config: RunConfig, worded: Worded | None = None
) -> str:
    """The open findings with their remedies, the gravest first, and those that are over; empty
    where there are none.

    A warning of the trainer is listed unless a finding covers it. `worded` gives advice with its
    commands as they can be called where it is shown; None where they can't be, which is said then.
    """
    items = record.findings.values()
    findings = [item.finding for item in items if not is_over(item, record, newest)]
    findings.sort(key=lambda finding: _GRAVEST_FIRST[finding.severity])
    codes = {finding.code for finding in findings}
    warned = [w for w in (newest.warnings[-3:] if newest else []) if w.code not in codes]
    past = over_in_words(past_findings(record, newest), record, _MOST_PAST)
    if not findings and not warned and past is None:
        return ""
    lines = ["## Findings", ""]
    for finding in findings[:_MOST_FINDINGS]:
        lines += _finding(finding, _Resuming(record, config), worded or str)
    if len(findings) > _MOST_FINDINGS:
        more = (worded or str)(command("diagnose", config.run_id))
        lines.append(f"- and {len(findings) - _MOST_FINDINGS} more: {more}")
    lines += [f"- `{warning.code}` at step {warning.step}." for warning in warned]
    lines += [f"- {past}"] if past is not None else []
    if worded is None and any(names_command(line) for line in lines):
        lines += ["", _WHERE]
    return "\n".join(lines) + "\n"


class _Resuming:
    """The commands that apply a patch to a run in its state; none to an attached one."""

    def __init__(self, record: Record, config: RunConfig) -> None:
        self._run = config.run_id
        self.is_possible = config.framework != ATTACHED
        self._ended = record.state in ENDED_PLACEMENTS

    def commands(self, finding: Finding, patch: Patch) -> str:
        resume = f"{command('resume', self._run, '--apply', f'{finding.id}:{patch.id}')}"
        return resume if self._ended else f"{command('stop', self._run)}, then {resume}"


def _finding(finding: Finding, resuming: _Resuming, worded: Worded) -> Iterable[str]:
    at = "" if finding.step is None else f" at step {finding.step:,}"
    named = f"`{finding.code}`{at} ({finding.id})"
    yield f"- **{finding.severity}** {named}: {finding.explanation}".rstrip(": ")
    for line in finding.evidence[:1]:
        yield f"  - seen: `{line[:_LONGEST_EVIDENCE].replace('`', chr(39))}`"
    patches = finding.patches[:_MOST_REMEDIES] if resuming.is_possible else ()
    for patch in patches:
        sets = ", ".join(f"{name}={json.dumps(value)}" for name, value in patch.set.items())
        what = ", ".join(filter(None, (patch.why.rstrip("."), sets)))
        yield f"  - {worded(resuming.commands(finding, patch))}: {what}"
    for advice in finding.advice[: _MOST_REMEDIES - len(patches)]:
        yield f"  - {advice}"

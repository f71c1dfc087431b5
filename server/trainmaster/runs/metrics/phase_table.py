"""What a run measured in each phase of its curriculum."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.config.curriculum import Curriculum, Phase
from trainer_runtime.core.protocol.figures import rounded
from trainer_runtime.core.protocol.trainer_lines import PhaseChanged, trainer_line
from trainmaster.answers.base import Number
from trainmaster.answers.metrics import PhaseTable
from trainmaster.metrics.downsample import as_number
from trainmaster.metrics.run_series import RunSeries, run_series
from trainmaster.store.buckets import Bucket
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_DIGITS = 4


def phase_table(workspace: Workspace, view: RunView) -> PhaseTable | None:
    """A row per phase, over the live steps; None for a run without phases."""
    curriculum = Curriculum.of(view.run.config)
    if not curriculum.has_phases:
        return None
    loss, rate = (run_series(workspace, view, key) for key in ("loss", "lr"))
    losses = [_within(loss, phase) for phase in curriculum.phases]
    rates = [_within(rate, phase) for phase in curriculum.phases]
    firsts = [loss.from_(phase.begins + 1) for phase in curriculum.phases]
    return PhaseTable(
        phase=[phase.name for phase in curriculum.phases],
        first_step=[phase.begins + 1 for phase in curriculum.phases],
        last_step=[phase.ends for phase in curriculum.phases],
        n=[0 if bucket is None else bucket.n for bucket in losses],
        first=[
            None if bucket is None or row is None else _number(row[2])
            for bucket, row in zip(losses, firsts, strict=True)
        ],
        last=[None if bucket is None else _number(bucket.last) for bucket in losses],
        min=[None if bucket is None else _number(bucket.low) for bucket in losses],
        tokens=[
            _tokens(curriculum, phase, bucket)
            for phase, bucket in zip(curriculum.phases, losses, strict=True)
        ],
        lr_low=[None if bucket is None else _number(bucket.low) for bucket in rates],
        lr_high=[None if bucket is None else _number(bucket.high) for bucket in rates],
        mix=_mixes(workspace, view, curriculum),
    )


def _within(series: RunSeries, phase: Phase) -> Bucket | None:
    return series.between(phase.begins + 1, phase.ends).whole()


def _number(value: float | None) -> Number | None:
    return None if value is None else as_number(rounded(value, _DIGITS))


def _tokens(curriculum: Curriculum, phase: Phase, bucket: Bucket | None) -> int:
    """Of the steps of the phase that are done."""
    done = phase.begins if bucket is None else bucket.last_x
    return curriculum.tokens_before(done) - curriculum.tokens_before(phase.begins)


def _mixes(
    workspace: Workspace, view: RunView, curriculum: Curriculum
) -> dict[str, list[float | None]] | None:
    """By source its share of the sequences that each phase has drawn; None where none is known."""
    drawn: dict[str, Mapping[str, int]] = {}
    for stored in workspace.metrics.events_of(view.run.run_id, view.run.placement, "phase"):
        line, step = trainer_line(stored.event), stored.event.step
        if not isinstance(line, PhaseChanged) or step is None or not any(line.drawn.values()):
            continue
        if view.lineage.is_live(stored.attempt, step):
            drawn[line.name] = line.drawn
    if not drawn:
        return None
    by_phase = [drawn.get(phase.name) for phase in curriculum.phases]
    return {
        source.name: [
            None
            if counts is None
            else rounded(counts.get(source.name, 0) / sum(counts.values()), _DIGITS)
            for counts in by_phase
        ]
        for source in view.run.config.data.sources
    }

"""The texts that a run's model wrote while it was trained, from the run's events."""

from __future__ import annotations

from typing import cast, get_args

from trainer_runtime.core.answers.sampled import EVENT
from trainmaster.answers.status import Ended, Sample
from trainmaster.store.metrics_rows import StoredEvent
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace


def of_training(workspace: Workspace, view: RunView) -> list[tuple[int, Sample]]:
    """By step, each with its attempt, without superseded ones."""
    events = workspace.metrics.events_of(view.run.run_id, view.run.placement, EVENT)
    live: list[tuple[int, Sample]] = []
    for stored in events:
        step = stored.event.step
        if step is not None and view.lineage.is_live(stored.attempt, step):
            live.append((stored.attempt, _recorded(stored)))
    newest = {sample.step: attempt for attempt, sample in live}
    current = [entry for entry in live if entry[0] == newest[entry[1].step]]
    return sorted(current, key=lambda entry: entry[1].step or 0)


def newest_samples(workspace: Workspace, view: RunView) -> list[Sample]:
    """Those of the last step that has any."""
    samples = [sample for _, sample in of_training(workspace, view)]
    return [sample for sample in samples if sample.step == samples[-1].step]


def ended_of(reported: str | None) -> Ended:
    """How a text ended, by a host's word."""
    return cast(Ended, reported) if reported in get_args(Ended) else "failed"


def _recorded(stored: StoredEvent) -> Sample:
    tokens = stored.event.document.get("tokens")
    return Sample(
        step=stored.event.step,
        untrusted_prompt=_text(stored, "prompt") or "",
        untrusted_text=_text(stored, "text") or "",
        tokens=tokens if isinstance(tokens, int) else 0,
        ended=ended_of(_text(stored, "ended")),
        untrusted_detail=_text(stored, "reason"),
    )


def _text(stored: StoredEvent, name: str) -> str | None:
    """A field of an event; anything else than a string counts as none."""
    value = stored.event.document.get(name)
    return value if isinstance(value, str) else None

"""The texts that a run's model wrote while it was trained, from the run's events."""

from __future__ import annotations

from contextlib import suppress
from typing import cast, get_args

from trainer_runtime.core.answers.sampled import EVENT
from trainer_runtime.core.decoding import DecodingError
from trainmaster.store.metrics_rows import StoredEvent
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.status import Ended, Sample


def of_training(workspace: Workspace, run: Run) -> list[Sample]:
    """All, by step; of one that was trained again the newest."""
    newest: dict[tuple[int, str], Sample] = {}
    for stored in workspace.metrics.events_of(run.run_id, run.placement, EVENT):
        with suppress(DecodingError):  # of a host that writes other types
            made = _recorded(stored)
            newest[made.step or 0, made.untrusted_prompt or ""] = made
    return [newest[key] for key in sorted(newest, key=lambda key: key[0])]


def newest_samples(workspace: Workspace, run: Run) -> list[Sample]:
    """Those of the last step that has any."""
    found = of_training(workspace, run)
    return [one for one in found if one.step == found[-1].step]


def ended_of(reported: str | None) -> Ended:
    """How a text ended, by a host's word."""
    return cast(Ended, reported) if reported in get_args(Ended) else "failed"


def _recorded(stored: StoredEvent) -> Sample:
    fields = stored.event.fields
    return Sample(
        step=stored.event.step,
        untrusted_prompt=fields.find_text("prompt") or "",
        untrusted_text=fields.find_text("text") or "",
        tokens=fields.find_integer("tokens") or 0,
        ended=ended_of(fields.find_text("ended")),
        untrusted_detail=fields.find_text("reason"),
    )

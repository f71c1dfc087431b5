"""Ends a run that nobody lends a place any more: `given_up.json`, by who submits its jobs."""

from __future__ import annotations

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS, DesiredState, PlacementState
from trainer_runtime.host.files.files import read_fields
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.supervise.record import Journal


def is_wanted(record: Record, desired: Desired) -> bool:
    """Whether a run is to train, now or later."""
    is_over = record.state in ENDED_PLACEMENTS and record.generation >= desired.generation
    return desired.state is DesiredState.RUNNING and not is_over


def end_given_up(run: RunFolder, journal: Journal, desired: Desired) -> bool:
    """Fail the run where its newest request was given up; True if that was due."""
    written = read_fields(run.given_up) if is_wanted(journal.record, desired) else None
    if written is None or written.integer("generation", 0) != desired.generation:
        return False
    fields = {"generation": desired.generation}
    if journal.record.state in ENDED_PLACEMENTS:  # which no other end may follow at once
        journal.write("state", {"state": PlacementState.PREPARING.value, **fields})
    reason, detail = written.text("reason", "no_progress"), written.find_text("message")
    state = {"state": PlacementState.FAILED.value, "reason": reason, "detail": detail}
    journal.write("state", {**state, **fields})
    return True

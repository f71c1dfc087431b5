"""Write a run's journal on behalf of its supervisor while no session is alive.

Without a supervisor no request is answered. The next session gets the mirrored journal, so its
supervisor sees these lines as history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainer_runtime.core.protocol.followed_files import JOURNAL
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS, DesiredState, PlacementState
from trainmaster.backends.kaggle.placement import KagglePlacement, record_of
from trainmaster.backends.kaggle.sessions import given_up, is_wanted
from trainmaster.store.control.kaggle import KaggleRecords
from trainmaster.store.mirror import PlacementMirror
from trainmaster.store.mirror_writer import MirrorWriter

NO_PROGRESS, UNUSABLE = "no_progress", "unusable"


Lines = Sequence[tuple[str, Mapping[str, Any]]]


def due_lines(placement: KagglePlacement, records: KaggleRecords, mirror: PlacementMirror) -> Lines:
    """The lines that a supervisor would write for the newest request; empty if none are due."""
    desired = placement.desired
    record = record_of(mirror)
    is_over = record.state in ENDED_PLACEMENTS
    lines: list[tuple[str, Mapping[str, Any]]] = []
    if desired.state is DesiredState.STOPPED and desired.generation > record.generation:
        lines.append(_stopped(desired.generation, is_over))
    elif is_wanted(record, desired):
        refusal = placement.refusal
        why = given_up(records.of_run(placement.run_id), desired.generation)
        if refusal is not None:
            lines.append(_state(PlacementState.FAILED, UNUSABLE, refusal, desired.generation))
        elif why is not None:
            lines.append(_state(PlacementState.FAILED, NO_PROGRESS, why, desired.generation))
    if lines or (is_over and not record.closed and not is_wanted(record, desired)):
        lines.append(("closed", {}))
    return lines


def write_lines(writer: MirrorWriter, lines: Lines, now: float) -> None:
    """The caller holds the follower lock, and no session of the run is alive."""
    last_seq, size = record_of(writer.mirror).last_seq, writer.size(JOURNAL)
    torn = size > 0 and writer.mirror.read(JOURNAL, size - 1, 1) != b"\n"
    data = b"\n" if torn else b""
    for number, (kind, fields) in enumerate(lines):
        data += encode(last_seq + 1 + number, now, kind, fields)
    writer.append(JOURNAL, data, final=True)


def _stopped(generation: int, is_over: bool) -> tuple[str, Mapping[str, Any]]:
    if is_over:
        return "acknowledged", {"generation": generation}
    return _state(PlacementState.STOPPED, "stopped", None, generation)


def _state(
    state: PlacementState, reason: str, detail: str | None, generation: int
) -> tuple[str, Mapping[str, Any]]:
    line = {"state": state.value, "reason": reason, "detail": detail, "generation": generation}
    return "state", line

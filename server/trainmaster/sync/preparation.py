"""The progress of a run's newest attempt's preparation, from the mirror of its `setup.log`."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.environment.setup_log import SetupStep, setup_step
from trainer_runtime.core.protocol.followed_files import SETUP_LOG
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.states import AttemptState
from trainer_runtime.core.protocol.text import shown
from trainmaster.store.mirror import PlacementMirror

_TAIL_BYTES = 8192
_LONGEST_LINE = 200


@dataclass(frozen=True, slots=True)
class Preparation:
    """`step`: None where none was reported yet; `line`: the last line of its log."""

    attempt: int
    since_t: float
    step: SetupStep | None
    line: str | None


def preparation_of(record: Record, mirror: PlacementMirror) -> Preparation | None:
    """That of the newest attempt; None where its trainer has started, or it has ended."""
    attempt = record.current
    if attempt is None or attempt.state is not AttemptState.STARTING:
        return None
    lines = _last_lines(mirror, f"attempts/{attempt.number}/{SETUP_LOG}")
    return Preparation(
        attempt.number,
        attempt.starting_t,
        setup_step(lines),
        lines[-1][:_LONGEST_LINE] if lines else None,
    )


def _last_lines(mirror: PlacementMirror, name: str) -> list[str]:
    try:
        size = mirror.size(name)
        data = mirror.read(name, max(0, size - _TAIL_BYTES), _TAIL_BYTES)
    except OSError:
        return []
    return [line for raw in data.split(b"\n") if (line := shown(raw).strip())]

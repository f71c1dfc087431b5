"""How the ranks of one attempt ended, and what that makes of the attempt.

A launcher ends the other ranks as soon as one leaves with a code other than 0, be they in the
middle of a save. So under `host/processes/ranks.py` a rank that ends in order leaves with 0 and
writes down its true code; the attempt's is found from what all of them have written.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.protocol.lines import ExitCode

# The folder beside the configuration that the ranks write their ends into, one file each.
RANKS = "ranks"
# In that folder: how all ranks of this machine ended, once they have.
ENDS = "ends.json"
FOLDER_VARIABLE = "TRAINMASTER_RANKS"
# The pid of who watches over the launcher.
WATCHER_VARIABLE = "TRAINMASTER_RANKS_WATCHER"

# A rank that is killed closes its connections: another may have ended by that before it is seen.
# Launchers kill the others only half a minute after the first.
_SEEN_WITHIN_S = 10.0
_IN_ORDER = (ExitCode.COMPLETE, ExitCode.SAVED_ON_SIGTERM)


@dataclass(frozen=True, slots=True)
class RankEnd(JsonRecord):
    """One rank's end at `t` (Unix seconds): by its own `code`, or by a `signal`."""

    rank: int
    t: float
    code: int | None = None
    signal: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the other ranks can't continue without it."""
        return self.signal is not None or self.code not in _IN_ORDER


def end_file(rank: int) -> str:
    """The name of the file in which a rank records its exit."""
    return f"{rank}.json"


def log_file(rank: int) -> str:
    """The name of the file with what a rank alone has printed."""
    return f"{rank}.log"


def outcome(ends: Sequence[RankEnd], processes: int, launcher_code: int) -> int:
    """The attempt's exit code, or minus the signal it died by, once no process of it lives.

    That of the rank that failed first, or the launcher's own if only the launcher failed.
    """
    first = first_failure(ends)
    if first is not None:
        return -first.signal if first.signal is not None else first.code or 0
    if len(ends) < processes:
        return launcher_code or 1
    return max(end.code or 0 for end in ends)


def first_failure(ends: Sequence[RankEnd]) -> RankEnd | None:
    """The end of the rank that failed first; None where none did."""
    return min((end for end in ends if end.failed), key=_began, default=None)


def _began(end: RankEnd) -> float:
    """When it failed, adjusted to find the first failure; SIGTERM comes from the launcher."""
    is_cause = end.signal not in (None, signal.SIGTERM)
    return end.t - _SEEN_WITHIN_S if is_cause else end.t

"""What node 0 and its members say to one another, each about once a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.processes.rank_exits import RankEnd

# Every node says something so often.
BEAT_S = 1.0

Stage = Literal["prepare", "run", "terminate", "end", "leave"]
Phase = Literal["idle", "fetching", "preparing", "prepared", "running", "ended", "failed"]


@dataclass(frozen=True, slots=True)
class Order(JsonRecord):
    """What node 0 wants of an attempt now; it is repeated until it changes.

    `prepare` fetches, and prepares; `run` starts it; `terminate` has it save and end; `end` kills
    it; `leave`: the run has ended, and so does the member. `candidates`: the checkpoints that it
    may start from, best first. `taking_part`: the numbers of the nodes that the attempt is for; the
    others have none. `config` is sent until the member has it.
    """

    attempt: int
    stage: Stage
    candidates: tuple[int, ...] = ()
    taking_part: tuple[int, ...] = ()
    rendezvous: Mapping[str, Any] | None = None
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Report(JsonRecord):
    """What a member says of its part in an attempt.

    `t`: Unix seconds by its clock. `code`, `signal`: of a preparation that failed, or of the end;
    `ends`: how its ranks ended; `tail`: the end of its log, once it has ended or failed. `torch`:
    the version that it has prepared. `problem`: what keeps it from doing what is wanted.
    """

    attempt: int | None
    phase: Phase
    t: float
    code: int | None = None
    signal: int | None = None
    ends: tuple[RankEnd, ...] = ()
    tail: str = ""
    problem: str | None = None
    torch: str | None = None

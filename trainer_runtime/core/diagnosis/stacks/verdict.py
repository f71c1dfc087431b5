"""What a stall is: a collective that a rank doesn't join, data, a checkpoint, or a slow step only.

The first cause counts, not the last symptom: where one rank waits for its data, the others wait in
a collective, and only the first is told of. A GPU's utilisation proves nothing (a collective that
hangs shows 100 %), so what decides is whether steps come, whether stacks change between the
samples, and where each rank stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.stacks.frames import Frame, Thread
from trainer_runtime.core.diagnosis.stacks.places import WAITING, Place, Standing, standing

HANG_COLLECTIVE, HANG_DATA, HANG_CHECKPOINT = "hang_collective", "hang_data", "hang_checkpoint"
SLOW, MOVING, STALL = "slow_not_hung", "moving", "stall"
_SLOW_TIMES = 3.0  # a step that takes so many times the usual one is slow
_PATIENCE_TIMES = 3.0  # of the longest of the newest steps
_LEAST_PATIENCE_S = 2.0
_BUSY = 0.5  # of one core: it computes, or spins
_STARVED = 0.05  # it would compute, and others hold the cores


@dataclass(frozen=True, slots=True)
class Pace:
    """How the steps came. `silent_s`: seconds since the last one, by the newest look. `usual_s` is
    the median of the distances between steps, `recent_s` the longest of the newest few; each None
    where nothing tells it. `gained`: steps that came while the samples were taken."""

    step: int | None = None
    silent_s: float | None = None
    usual_s: float | None = None
    recent_s: float | None = None
    gained: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """One process that was looked at. `samples` are its threads, a look each, empty where it did
    not answer. `cpu_share` is of one core. `blocked` tells of each thread that is in a call of the
    kernel about a file: the call, the file, and the state's letter."""

    pid: int
    samples: tuple[tuple[Thread, ...], ...] = ()
    state: str = "S"
    cpu_share: float = 0.0
    blocked: tuple[tuple[str, str, str], ...] = ()

    @property
    def main(self) -> tuple[Frame, ...]:
        """The main thread's frames as they were last seen."""
        return _main(self.samples[-1]) if self.samples else ()

    @property
    def moves(self) -> bool:
        """Whether the main thread stood elsewhere in one sample than in another."""
        return len({_main(sample) for sample in self.samples}) > 1

    @property
    def roams(self) -> bool:
        """Whether it moves among functions, not only within one: a poll stays where it is."""
        chains = {tuple(frame.function for frame in _main(sample)) for sample in self.samples}
        return len(chains) > 1

    @property
    def is_busy(self) -> bool:
        return self.cpu_share >= _BUSY or (self.state == "R" and self.cpu_share >= _STARVED)


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank: its trainer, and the workers that this one has started."""

    rank: int
    process: Process
    workers: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rank` is the one that differs from the others, where there is one. `reason` is a key of
    `wording.REASONS`; `slots` are its numbers; `evidence` holds the training's own names."""

    code: str
    confidence: float
    reason: str
    rank: int | None = None
    slots: dict[str, float | int] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()

    @property
    def is_finding(self) -> bool:
        """Whether something is wrong that this names."""
        return self.code not in (MOVING, STALL)


def judge(ranks: Sequence[Rank], pace: Pace, world_size: int | None = None) -> Verdict:
    """What keeps the training from its next step, if anything does.

    `world_size`: how many ranks there should be; the others are on other machines, or gone.
    """
    if not ranks:
        return Verdict(STALL, 0.0, "no_process")
    stands = {one.rank: standing(one.process.main) for one in ranks}
    by_pace = _by_pace(pace, stands)
    if by_pace is not None:
        return by_pace
    stopped = next((one for one in ranks if one.process.state in _STOPPED), None)
    if stopped is not None:
        slots: dict[str, float | int] = {"pid": stopped.process.pid, "rank": stopped.rank}
        return Verdict(STALL, 0.95, "stopped_process", stopped.rank, slots)
    if not any(one.process.samples for one in ranks):
        return _by_kernel(ranks)
    compiling = [one for one in ranks if stands[one.rank].place is Place.COMPILE]
    if compiling:
        return _told(SLOW, 0.7, "compiling", compiling, stands)
    for attempt in (_many, _few):
        found = attempt(ranks, stands, world_size)
        if found is not None:
            return found
    return _undecided(ranks, stands)


def _by_pace(pace: Pace, stands: dict[int, Standing]) -> Verdict | None:
    """Where steps come, nothing hangs."""
    if pace.silent_s is None:
        return None
    recent = max(pace.recent_s or 0.0, pace.usual_s or 0.0)
    if pace.gained == 0 and (
        recent == 0.0 or pace.silent_s > max(_LEAST_PATIENCE_S, _PATIENCE_TIMES * recent)
    ):
        return None
    now = max(pace.recent_s or 0.0, pace.silent_s)
    usual = pace.usual_s
    if usual is not None and now > _SLOW_TIMES * usual and now > _LEAST_PATIENCE_S:
        slots: dict[str, float | int] = {"recent_s": now, "usual_s": usual}
        reason = "slow_data" if _all_at(stands, Place.DATA) else "slow_steps"
        return Verdict(SLOW, 0.9, reason, slots=slots, evidence=_lines(stands))
    return Verdict(MOVING, 0.9, "moving", evidence=_lines(stands))


def _many(
    ranks: Sequence[Rank], stands: dict[int, Standing], world_size: int | None
) -> Verdict | None:
    """What several ranks tell by where they differ."""
    if len(ranks) < 2:
        return None
    waiting = [one for one in ranks if _waits(one, stands)]
    others = [one for one in ranks if one not in waiting]
    if waiting and others:
        return _who_stays_away(others, stands)
    if waiting:
        return _all_wait(ranks, stands, world_size)
    at = Counter(stands[one.rank].place for one in ranks)
    if set(at) == {Place.OTHER} and not any(one.process.roams for one in ranks):
        apart = _apart(ranks, lambda one: stands[one.rank].call)
        if apart:
            return _told(HANG_COLLECTIVE, 0.4, "different_lines", apart, stands)
    return None


def _who_stays_away(others: Sequence[Rank], stands: dict[int, Standing]) -> Verdict:
    """Some ranks wait for `others`, who are at something else: that is the cause."""
    for place, code, reason in (
        (Place.DATA, HANG_DATA, "rank_waits_for_data"),
        (Place.CHECKPOINT, HANG_CHECKPOINT, "rank_saves"),
    ):
        there = [one for one in others if stands[one.rank].place is place]
        if there:
            if all(_advances(one) for one in there):
                return _told(SLOW, 0.6, "straggler", there, stands, rank=there[0].rank)
            return _told(code, 0.85, reason, there, stands, rank=there[0].rank)
    if all(one.process.roams for one in others):
        return _told(SLOW, 0.6, "straggler", others, stands, rank=others[0].rank)
    silent = [one for one in others if not one.process.samples]
    if silent:
        return _told(
            HANG_COLLECTIVE, 0.7, "rank_does_not_answer", silent, stands, rank=silent[0].rank
        )
    sure = 0.7 if any(one.process.moves for one in others) else 0.9
    return _told(HANG_COLLECTIVE, sure, "rank_stays_away", others, stands, rank=others[0].rank)


def _all_wait(
    ranks: Sequence[Rank], stands: dict[int, Standing], world_size: int | None
) -> Verdict:
    """Every rank that was seen waits for others."""

    def operation(one: Rank) -> object:
        found = stands[one.rank]
        return (found.place, found.sign.function if found.sign else "", found.call)

    apart = _apart(ranks, operation)
    if apart:
        alone = apart[0].rank if len(apart) == 1 or len(ranks) == 2 else None
        return _told(HANG_COLLECTIVE, 0.9, "different_collectives", apart, stands, rank=alone)
    if world_size is not None and world_size > len(ranks):
        slots: dict[str, float | int] = {"seen": len(ranks), "world_size": world_size}
        return _told(HANG_COLLECTIVE, 0.7, "ranks_unseen", ranks, stands, slots=slots)
    reason = "rendezvous" if _all_at(stands, Place.RENDEZVOUS) else "same_collective"
    return _told(HANG_COLLECTIVE, 0.7, reason, ranks, stands)


def _few(
    ranks: Sequence[Rank], stands: dict[int, Standing], world_size: int | None
) -> Verdict | None:
    """What ranks tell that don't wait for each other."""
    for place, code, reason, slow in (
        (Place.DATA, HANG_DATA, "waits_for_data", "slow_data"),
        (Place.CHECKPOINT, HANG_CHECKPOINT, "saves", "slow_save"),
    ):
        there = [one for one in ranks if stands[one.rank].place is place]
        if there:
            if all(_advances(one) for one in there):
                return _told(SLOW, 0.6, slow, there, stands)
            blocked = any(one.process.blocked or one.process.state == "D" for one in there)
            return _told(code, 0.95 if blocked else 0.85, reason, there, stands)
    peers = [one for one in ranks if stands[one.rank].place in (Place.COLLECTIVE, Place.RENDEZVOUS)]
    if peers:
        seen: dict[str, float | int] = {"seen": len(ranks)}
        return _told(HANG_COLLECTIVE, 0.8, "peers_unseen", peers, stands, slots=seen)
    return None


def _undecided(ranks: Sequence[Rank], stands: dict[int, Standing]) -> Verdict:
    """No place names it: who moves or computes is slow, the rest stalls for a reason unknown."""
    saving = [one for one in ranks if _writer_waits(one)]
    if saving:
        return _told(HANG_CHECKPOINT, 0.6, "writer_blocked", saving, stands)
    if any(one.process.roams for one in ranks):
        return _told(SLOW, 0.6, "stacks_change", ranks, stands)
    if any(one.process.is_busy for one in ranks):
        return _told(SLOW, 0.5, "computes", ranks, stands)
    if all(stands[one.rank].place is Place.IMPORT for one in ranks):
        return _told(STALL, 0.5, "loading", ranks, stands)
    return _told(STALL, 0.5, "unknown_place", ranks, stands)


def _by_kernel(ranks: Sequence[Rank]) -> Verdict:
    """Nobody answered; the calls of the kernel in which they wait may still tell."""
    calls = [blocked for one in ranks for blocked in one.process.blocked]
    evidence = tuple(f"{call} of {target}, state {state}" for call, target, state in calls)[:6]
    written = [one for one in calls if one[0] in _WRITES and "checkpoint" in one[1]]
    if written:
        return Verdict(HANG_CHECKPOINT, 0.7, "kernel_write", evidence=evidence)
    if any(call in _READS and state == "D" for call, _, state in calls):
        return Verdict(HANG_DATA, 0.5, "kernel_read", evidence=evidence)
    return Verdict(STALL, 0.2, "no_stacks", evidence=evidence)


_WRITES = frozenset({"write", "pwrite", "writev", "fsync", "fdatasync"})
_READS = frozenset({"read", "pread", "readv"})
_STOPPED = frozenset("Tt")


def _main(threads: Sequence[Thread]) -> tuple[Frame, ...]:
    return threads[0].frames if threads else ()


def _waits(one: Rank, stands: dict[int, Standing]) -> bool:
    return stands[one.rank].place in WAITING and not one.process.roams


def _advances(one: Rank) -> bool:
    """Whether its own thread or a worker of its gets on."""
    return one.process.roams or any(worker.roams or worker.is_busy for worker in one.workers)


def _writer_waits(one: Rank) -> bool:
    """Whether another thread than the main one is at a checkpoint, in a call about its file."""
    threads = one.process.samples[-1][1:] if one.process.samples else ()
    saves = any(standing(thread.frames).place is Place.CHECKPOINT for thread in threads)
    return saves and any(call in _WRITES for call, _, _ in one.process.blocked)


def _all_at(stands: dict[int, Standing], place: Place) -> bool:
    return all(found.place is place for found in stands.values())


def _apart(ranks: Sequence[Rank], what: Callable[[Rank], object]) -> list[Rank]:
    """The ranks that differ from the most; of two, the higher; none where all are alike."""
    groups: dict[object, list[Rank]] = {}
    for one in ranks:
        groups.setdefault(what(one), []).append(one)
    if len(groups) < 2:
        return []
    largest = max(groups.values(), key=lambda group: (len(group), -group[0].rank))
    return [one for one in ranks if one not in largest]


def _told(
    code: str,
    confidence: float,
    reason: str,
    about: Iterable[Rank],
    stands: dict[int, Standing],
    *,
    rank: int | None = None,
    slots: dict[str, float | int] | None = None,
) -> Verdict:
    first = {one.rank: stands[one.rank] for one in about}
    rest = {number: found for number, found in stands.items() if number not in first}
    told = dict(slots or {})
    if rank is not None:
        told["rank"] = rank
    return Verdict(code, confidence, reason, rank, told, (*_lines(first), *_lines(rest))[:6])


def _lines(stands: dict[int, Standing]) -> tuple[str, ...]:
    """Where each rank stands, a line each: the training's own call, and what it is in."""
    told = []
    for rank, found in stands.items():
        frames = (found.call, found.sign if found.sign != found.call else None)
        where = ", in ".join(frame.short for frame in frames if frame is not None)
        if where:
            told.append(f"rank {rank}: {where}")
    return tuple(told)

"""The verdict on a stall: a collective that a rank didn't join, data, a checkpoint, or slowness.

The root cause counts, not the symptom: where one rank waits for data, the others wait in a
collective, and only the first is reported. GPU utilisation proves nothing (a hanging collective
shows 100 %). What decides is whether steps come, whether stacks change between samples, and where
each rank is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.diagnosis.stacks.frames import Frame, Thread
from trainer_runtime.core.diagnosis.stacks.places import WAITING, Place, StackLocation, locate
from trainer_runtime.core.protocol.progress import is_overdue

HANG_COLLECTIVE, HANG_DATA, HANG_CHECKPOINT = "hang_collective", "hang_data", "hang_checkpoint"
SLOW, MOVING, STALL = "slow_not_hung", "moving", "stall"
_SLOW_FACTOR = 3.0  # a step is slow if it takes this many times the usual
_GRACE_FACTOR = 3.0  # of the longest of the newest steps
_MIN_GRACE_S = 2.0
_BUSY = 0.5  # of one core: it computes, or spins
_STARVED = 0.05  # it would compute, and others hold the cores


@dataclass(frozen=True, slots=True)
class Pace(JsonRecord):
    """The pace of steps. `silent_s`: seconds since the last step at the newest sample. `usual_s` is
    the median interval between steps, `recent_s` the longest of the newest few; each is None where
    unknown. `gained`: steps that came while the samples were taken."""

    step: int | None = None
    silent_s: float | None = None
    usual_s: float | None = None
    recent_s: float | None = None
    gained: int = 0

    @property
    def is_overdue(self) -> bool:
        """Whether no step has come for long, by the run's own pace."""
        is_measured = self.silent_s is not None and self.usual_s is not None
        return (
            is_measured
            and not self.gained
            and is_overdue(self.silent_s or 0.0, self.usual_s or 0.0)
        )


@dataclass(frozen=True, slots=True)
class Process:
    """An inspected process. `samples` are its threads at each sample, empty if it did not respond.
    `cpu_share` is of one core. `blocked` lists threads in a system call on a file: the call, the
    file, and the state's letter."""

    pid: int
    samples: tuple[tuple[Thread, ...], ...] = ()
    state: str = "S"
    cpu_share: float = 0.0
    blocked: tuple[tuple[str, str, str], ...] = ()

    @property
    def main(self) -> tuple[Frame, ...]:
        """The main thread's frames in the last sample."""
        return _main_frames(self.samples[-1]) if self.samples else ()

    @property
    def changes_stack(self) -> bool:
        """Whether the main thread's frames differ between samples."""
        return len({_main_frames(sample) for sample in self.samples}) > 1

    @property
    def changes_function(self) -> bool:
        """Whether its functions differ, not only lines: a polling loop stays in one function."""
        chains = {
            tuple(frame.function for frame in _main_frames(sample)) for sample in self.samples
        }
        return len(chains) > 1

    @property
    def uses_cpu(self) -> bool:
        return self.cpu_share >= _BUSY or (self.state == "R" and self.cpu_share >= _STARVED)


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank: its trainer process and the workers that it started."""

    rank: int
    process: Process
    workers: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict(JsonRecord):
    """`rank` is the one that differs from the others, if any. `reason` is a key of
    `messages.REASONS`, `slots` are its numbers; `evidence` contains names of the training."""

    code: str
    confidence: float
    reason: str
    rank: int | None = None
    slots: dict[str, float | int] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()

    @property
    def is_finding(self) -> bool:
        """Whether it names a problem."""
        return self.code not in (MOVING, STALL)


def judge(ranks: Sequence[Rank], pace: Pace, world_size: int | None = None) -> Verdict:
    """What prevents the training's next step, if anything.

    `world_size`: the expected number of ranks; missing ones are on other machines or have died.
    """
    if not ranks:
        return Verdict(STALL, 0.0, "no_process")
    locations = {rank_seen.rank: locate(rank_seen.process.main) for rank_seen in ranks}
    by_pace = _by_pace(pace, locations)
    if by_pace is not None:
        return by_pace
    stopped = next((rank_seen for rank_seen in ranks if rank_seen.process.state in _STOPPED), None)
    if stopped is not None:
        slots: dict[str, float | int] = {"pid": stopped.process.pid, "rank": stopped.rank}
        return Verdict(STALL, 0.95, "stopped_process", stopped.rank, slots)
    if not any(rank_seen.process.samples for rank_seen in ranks):
        return _by_kernel(ranks)
    compiling = [
        rank_seen for rank_seen in ranks if locations[rank_seen.rank].place is Place.COMPILE
    ]
    if compiling:
        return _verdict(SLOW, 0.7, "compiling", compiling, locations)
    for attempt in (_by_differences, _by_place):
        verdict = attempt(ranks, locations, world_size)
        if verdict is not None:
            return verdict
    return _undecided(ranks, locations)


def _by_pace(pace: Pace, locations: dict[int, StackLocation]) -> Verdict | None:
    """The verdict if steps come, so that nothing hangs; None otherwise."""
    if pace.silent_s is None:
        return None
    recent = max(pace.recent_s or 0.0, pace.usual_s or 0.0)
    if pace.gained == 0 and (
        recent == 0.0 or pace.silent_s > max(_MIN_GRACE_S, _GRACE_FACTOR * recent)
    ):
        return None
    now = max(pace.recent_s or 0.0, pace.silent_s)
    usual = pace.usual_s
    if usual is not None and now > _SLOW_FACTOR * usual and now > _MIN_GRACE_S:
        slots: dict[str, float | int] = {"recent_s": now, "usual_s": usual}
        reason = "slow_data" if _all_are_at(locations, Place.DATA) else "slow_steps"
        return Verdict(SLOW, 0.9, reason, slots=slots, evidence=_lines(locations))
    return Verdict(MOVING, 0.9, "moving", evidence=_lines(locations))


def _by_differences(
    ranks: Sequence[Rank], locations: dict[int, StackLocation], world_size: int | None
) -> Verdict | None:
    """The verdict from the differences between several ranks."""
    if len(ranks) < 2:
        return None
    waiting = [rank_seen for rank_seen in ranks if _waits(rank_seen, locations)]
    others = [rank_seen for rank_seen in ranks if rank_seen not in waiting]
    if waiting and others:
        return _missing_ranks(others, locations)
    if waiting:
        return _all_wait(ranks, locations, world_size)
    at = Counter(locations[rank_seen.rank].place for rank_seen in ranks)
    if set(at) == {Place.OTHER} and not any(
        rank_seen.process.changes_function for rank_seen in ranks
    ):
        apart = _minority(ranks, lambda rank_seen: locations[rank_seen.rank].call)
        if apart:
            return _verdict(HANG_COLLECTIVE, 0.4, "different_lines", apart, locations)
    return None


def _missing_ranks(others: Sequence[Rank], locations: dict[int, StackLocation]) -> Verdict:
    """Some ranks wait for `others`, which do something else: that is the cause."""
    for place, code, reason in (
        (Place.DATA, HANG_DATA, "rank_waits_for_data"),
        (Place.CHECKPOINT, HANG_CHECKPOINT, "rank_saves"),
    ):
        there = [rank_seen for rank_seen in others if locations[rank_seen.rank].place is place]
        if there:
            if all(_makes_progress(rank_seen) for rank_seen in there):
                return _verdict(SLOW, 0.6, "straggler", there, locations, rank=there[0].rank)
            return _verdict(code, 0.85, reason, there, locations, rank=there[0].rank)
    if all(rank_seen.process.changes_function for rank_seen in others):
        return _verdict(SLOW, 0.6, "straggler", others, locations, rank=others[0].rank)
    silent = [rank_seen for rank_seen in others if not rank_seen.process.samples]
    if silent:
        return _verdict(
            HANG_COLLECTIVE, 0.7, "rank_unresponsive", silent, locations, rank=silent[0].rank
        )
    sure = 0.7 if any(rank_seen.process.changes_stack for rank_seen in others) else 0.9
    return _verdict(
        HANG_COLLECTIVE, sure, "rank_not_joined", others, locations, rank=others[0].rank
    )


def _all_wait(
    ranks: Sequence[Rank], locations: dict[int, StackLocation], world_size: int | None
) -> Verdict:
    """Every inspected rank waits for others."""

    def operation(rank_seen: Rank) -> object:
        location = locations[rank_seen.rank]
        return (location.place, location.sign.function if location.sign else "", location.call)

    apart = _minority(ranks, operation)
    if apart:
        alone = apart[0].rank if len(apart) == 1 or len(ranks) == 2 else None
        return _verdict(HANG_COLLECTIVE, 0.9, "different_collectives", apart, locations, rank=alone)
    if world_size is not None and world_size > len(ranks):
        slots: dict[str, float | int] = {"seen": len(ranks), "world_size": world_size}
        return _verdict(HANG_COLLECTIVE, 0.7, "ranks_missing", ranks, locations, slots=slots)
    reason = "rendezvous" if _all_are_at(locations, Place.RENDEZVOUS) else "same_collective"
    return _verdict(HANG_COLLECTIVE, 0.7, reason, ranks, locations)


def _by_place(
    ranks: Sequence[Rank], locations: dict[int, StackLocation], world_size: int | None
) -> Verdict | None:
    """The verdict for ranks that don't wait for each other."""
    for place, code, reason, slow in (
        (Place.DATA, HANG_DATA, "waits_for_data", "slow_data"),
        (Place.CHECKPOINT, HANG_CHECKPOINT, "saves", "slow_save"),
    ):
        there = [rank_seen for rank_seen in ranks if locations[rank_seen.rank].place is place]
        if there:
            if all(_makes_progress(rank_seen) for rank_seen in there):
                return _verdict(SLOW, 0.6, slow, there, locations)
            blocked = any(
                rank_seen.process.blocked or rank_seen.process.state == "D" for rank_seen in there
            )
            return _verdict(code, 0.95 if blocked else 0.85, reason, there, locations)
    peers = [
        rank_seen
        for rank_seen in ranks
        if locations[rank_seen.rank].place in (Place.COLLECTIVE, Place.RENDEZVOUS)
    ]
    if peers:
        seen: dict[str, float | int] = {"seen": len(ranks)}
        return _verdict(HANG_COLLECTIVE, 0.8, "peers_missing", peers, locations, slots=seen)
    return None


def _undecided(ranks: Sequence[Rank], locations: dict[int, StackLocation]) -> Verdict:
    """No place decides: a rank that moves or computes is slow, others stall for unknown reasons."""
    saving = [rank_seen for rank_seen in ranks if _is_writer_blocked(rank_seen)]
    if saving:
        return _verdict(HANG_CHECKPOINT, 0.6, "writer_blocked", saving, locations)
    if any(rank_seen.process.changes_function for rank_seen in ranks):
        return _verdict(SLOW, 0.6, "stacks_change", ranks, locations)
    if any(rank_seen.process.uses_cpu for rank_seen in ranks):
        return _verdict(SLOW, 0.5, "computes", ranks, locations)
    if all(locations[rank_seen.rank].place is Place.IMPORT for rank_seen in ranks):
        return _verdict(STALL, 0.5, "loading", ranks, locations)
    return _verdict(STALL, 0.5, "unknown_place", ranks, locations)


def _by_kernel(ranks: Sequence[Rank]) -> Verdict:
    """No process responded: judge by the system calls in which they wait."""
    calls = [blocked for rank_seen in ranks for blocked in rank_seen.process.blocked]
    evidence = tuple(f"{call} of {target}, state {state}" for call, target, state in calls)[:6]
    written = [
        rank_seen for rank_seen in calls if rank_seen[0] in _WRITES and "checkpoint" in rank_seen[1]
    ]
    if written:
        return Verdict(HANG_CHECKPOINT, 0.7, "kernel_write", evidence=evidence)
    if any(call in _READS and state == "D" for call, _, state in calls):
        return Verdict(HANG_DATA, 0.5, "kernel_read", evidence=evidence)
    return Verdict(STALL, 0.2, "no_stacks", evidence=evidence)


_WRITES = frozenset({"write", "pwrite", "writev", "fsync", "fdatasync"})
_READS = frozenset({"read", "pread", "readv"})
_STOPPED = frozenset("Tt")


def _main_frames(threads: Sequence[Thread]) -> tuple[Frame, ...]:
    return threads[0].frames if threads else ()


def _waits(rank_seen: Rank, locations: dict[int, StackLocation]) -> bool:
    return locations[rank_seen.rank].place in WAITING and not rank_seen.process.changes_function


def _makes_progress(rank_seen: Rank) -> bool:
    """Whether its main thread or one of its workers makes progress."""
    return rank_seen.process.changes_function or any(
        worker.changes_function or worker.uses_cpu for worker in rank_seen.workers
    )


def _is_writer_blocked(rank_seen: Rank) -> bool:
    """Whether a thread other than the main one writes a checkpoint and is blocked in a call."""
    threads = rank_seen.process.samples[-1][1:] if rank_seen.process.samples else ()
    saves = any(locate(thread.frames).place is Place.CHECKPOINT for thread in threads)
    return saves and any(call in _WRITES for call, _, _ in rank_seen.process.blocked)


def _all_are_at(locations: dict[int, StackLocation], place: Place) -> bool:
    return all(location.place is place for location in locations.values())


def _minority(ranks: Sequence[Rank], what: Callable[[Rank], object]) -> list[Rank]:
    """The ranks that differ from the majority; of two, the higher; none if all are alike."""
    groups: dict[object, list[Rank]] = {}
    for rank_seen in ranks:
        groups.setdefault(what(rank_seen), []).append(rank_seen)
    if len(groups) < 2:
        return []
    largest = max(groups.values(), key=lambda group: (len(group), -group[0].rank))
    return [rank_seen for rank_seen in ranks if rank_seen not in largest]


def _verdict(
    code: str,
    confidence: float,
    reason: str,
    about: Iterable[Rank],
    locations: dict[int, StackLocation],
    *,
    rank: int | None = None,
    slots: dict[str, float | int] | None = None,
) -> Verdict:
    first = {rank_seen.rank: locations[rank_seen.rank] for rank_seen in about}
    rest = {number: location for number, location in locations.items() if number not in first}
    shown = dict(slots or {})
    if rank is not None:
        shown["rank"] = rank
    return Verdict(code, confidence, reason, rank, shown, (*_lines(first), *_lines(rest))[:6])


def _lines(locations: dict[int, StackLocation]) -> tuple[str, ...]:
    """A line for each rank: the training's own call, and the frame that it is in."""
    shown = []
    for rank, location in locations.items():
        frames = (location.call, location.sign if location.sign != location.call else None)
        where = ", in ".join(frame.short for frame in frames if frame is not None)
        if where:
            shown.append(f"rank {rank}: {where}")
    return tuple(shown)

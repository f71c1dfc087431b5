"""What a verdict means and what to do, in our own words; no word comes from a stack."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.diagnosis.stacks import verdict
from trainer_runtime.core.diagnosis.stacks.verdict import Verdict
from trainer_runtime.core.protocol.finding import Finding, Severity, as_evidence, finding_id

REASONS: dict[str, str] = {
    "no_process": "No process of the attempt was found on the machine.",
    "no_stacks": "The processes live, but none of them tells where it stands.",
    "stopped_process": "The process of rank {rank}, pid {pid}, was stopped by a signal or a "
    "debugger; `kill -CONT {pid}` lets it go on.",
    "moving": "Steps come as they usually do.",
    "slow_steps": "Steps come, but a step takes {recent_s:.3g} s where {usual_s:.3g} s are usual.",
    "slow_data": "The data comes, but more slowly than the steps need it.",
    "slow_save": "A checkpoint is being written, and its stacks change: it gets on.",
    "compiling": "A step is being compiled; that takes minutes for a large model.",
    "straggler": "Rank {rank} is behind and still at work; the others wait for it.",
    "stacks_change": "The stacks change between the samples: the step goes on, slowly.",
    "computes": "The same lines stand in every sample while a core is busy: a long computation.",
    "rank_stays_away": "The other ranks wait in a collective operation that rank {rank} has not "
    "joined: it stands elsewhere.",
    "rank_does_not_answer": "The other ranks wait in a collective operation; rank {rank} does not "
    "answer.",
    "different_collectives": "The ranks wait in different collective operations, so none of them "
    "can finish.",
    "different_lines": "The ranks stand still at different lines; a collective operation that one "
    "of them does not join looks like this.",
    "same_collective": "Every rank waits in the same collective operation: the network or a GPU "
    "does not carry it.",
    "rendezvous": "Every rank still waits to meet the others.",
    "ranks_unseen": "{seen} ranks wait here for the others of {world_size}, which are on other "
    "machines or gone.",
    "peers_unseen": "It waits in a collective operation for ranks that are not on this machine, or "
    "are gone.",
    "rank_waits_for_data": "Rank {rank} waits for its data, and the other ranks for it.",
    "rank_saves": "Rank {rank} is writing a checkpoint that does not end, and the others wait.",
    "waits_for_data": "The trainer waits for a batch that does not come.",
    "saves": "The trainer waits for a checkpoint to be written, which does not end.",
    "writer_blocked": "The thread that writes the checkpoint is stuck in writing it.",
    "kernel_write": "No stack was told; a write into the checkpoints does not end.",
    "kernel_read": "No stack was told; a process waits for a disk to be read.",
    "loading": "The trainer is still loading its modules.",
    "unknown_place": "The trainer stands still at a place that is neither data, nor a checkpoint, "
    "nor a collective operation.",
}

ADVICE: dict[str, tuple[str, ...]] = {
    verdict.HANG_COLLECTIVE: (
        "Look at the stack of the rank that differs: what it is at is the cause.",
        "Stop the run and resume it; no time will bring this operation to its end.",
    ),
    verdict.HANG_DATA: (
        "Look at the storage that the data is read from, and at the stacks of the workers.",
        "Stop the run and resume it once the storage answers.",
    ),
    verdict.HANG_CHECKPOINT: (
        "Look at the disk that the checkpoints are written to: its space, its server, its errors.",
        "Stop the run and resume it once the disk answers.",
    ),
    verdict.SLOW: ("Leave it alone: it is no hang. Look for what slows it down.",),
    verdict.STALL: (
        "Read the stacks; inspect the run again in a minute and compare.",
        "Stop the run and resume it if nothing has changed.",
    ),
    verdict.MOVING: (),
}
_OF_OTHERS: dict[str, tuple[str, ...]] = {
    verdict.HANG_COLLECTIVE: (
        ADVICE[verdict.HANG_COLLECTIVE][0],
        "Whoever started it has to end it and start it again; no time will bring this operation to "
        "its end.",
    ),
    verdict.HANG_DATA: (
        ADVICE[verdict.HANG_DATA][0],
        "It may go on once the storage answers; else whoever started it has to start it again.",
    ),
    verdict.HANG_CHECKPOINT: (
        ADVICE[verdict.HANG_CHECKPOINT][0],
        "It may go on once the disk answers; else whoever started it has to start it again.",
    ),
    verdict.STALL: (
        ADVICE[verdict.STALL][0],
        "If nothing has changed, whoever started it has to end it and start it again.",
    ),
}
_STOPPED = "stopped_process"
_SEVERITIES: dict[str, Severity] = {verdict.SLOW: "warning"}


def explain(found: Verdict) -> str:
    """What a verdict means, in one sentence; its numbers filled in."""
    return REASONS[found.reason].format_map(found.slots)


def advice(found: Verdict, *, ours: bool = True) -> tuple[str, ...]:
    """What to do about it; `ours` is false of a training that others have started, which can be
    neither stopped nor resumed from here."""
    pid = stopped_pid(found)
    if pid is not None:
        return (f"Let it go on: `kill -CONT {pid}` on its machine, by whoever owns the process.",)
    return ADVICE[found.code] if ours else _OF_OTHERS.get(found.code, ADVICE[found.code])


def stopped_pid(found: Verdict) -> int | None:
    """The process that a signal or a debugger has stopped, where it is that."""
    return int(found.slots["pid"]) if found.reason == _STOPPED and "pid" in found.slots else None


def as_finding(
    found: Verdict, *, placement: int, attempt: int, step: int | None, ours: bool = True
) -> Finding | None:
    """The finding that a verdict makes at `step`; None where nothing is wrong or nothing known."""
    if not found.is_finding:
        return None
    slots: Mapping[str, float | int] = dict(found.slots)
    return Finding(
        finding_id(placement, attempt, found.code, step),
        found.code,
        _SEVERITIES.get(found.code, "critical"),
        found.confidence,
        step,
        as_evidence(line.encode() for line in found.evidence),
        explain(found),
        advice=advice(found, ours=ours),
        led_to=("stall",) if found.code != verdict.SLOW else (),
        slots=slots,
    )

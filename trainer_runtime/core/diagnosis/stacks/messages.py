"""Explanation and advice for each verdict; no text comes from a stack."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.diagnosis.stacks import verdict
from trainer_runtime.core.diagnosis.stacks.verdict import Verdict
from trainer_runtime.core.protocol.figures import number_text
from trainer_runtime.core.protocol.finding import Finding, Severity, as_evidence, finding_id

REASONS: dict[str, str] = {
    "no_process": "No process of the attempt was found on the machine.",
    "no_stacks": "The processes are alive, but none of them returned its stack.",
    "stopped_process": "The process of rank {rank}, pid {pid}, was stopped by a signal or a "
    "debugger; `kill -CONT {pid}` resumes it.",
    "moving": "Steps come at the usual pace.",
    "slow_steps": "Steps come, but a step takes {recent_s} s instead of the usual {usual_s} s.",
    "slow_data": "Data arrives, but more slowly than the steps need it.",
    "slow_save": "A checkpoint is being written and makes progress: its stacks change.",
    "compiling": "A step is being compiled, which takes minutes for a large model.",
    "straggler": "Rank {rank} is behind and still working; the others wait for it.",
    "stacks_change": "The stacks change between samples: the step makes progress, slowly.",
    "computes": "The stacks don't change while a core is busy: a long computation.",
    "rank_not_joined": "The other ranks wait in a collective operation that rank {rank} has not "
    "joined.",
    "rank_unresponsive": "The other ranks wait in a collective operation; rank {rank} does not "
    "respond.",
    "different_collectives": "The ranks wait in different collective operations, so none of them "
    "can finish.",
    "different_lines": "The ranks are stuck at different lines, possibly because one of them has "
    "not joined a collective operation.",
    "same_collective": "Every rank waits in the same collective operation, which the network or a "
    "GPU does not complete.",
    "rendezvous": "Every rank still waits in the rendezvous.",
    "ranks_missing": "{seen} ranks on this machine wait for the others of {world_size}, which are "
    "on other machines or have died.",
    "peers_missing": "It waits in a collective operation for ranks that are on other machines or "
    "have died.",
    "rank_waits_for_data": "Rank {rank} waits for its data, and the other ranks wait for it.",
    "rank_saves": "Rank {rank} is stuck writing a checkpoint, and the other ranks wait for it.",
    "waits_for_data": "The trainer waits for a batch that does not arrive.",
    "saves": "The trainer is stuck writing a checkpoint.",
    "writer_blocked": "The thread that writes the checkpoint is stuck.",
    "kernel_write": "No stack is available; a write to the checkpoints does not finish.",
    "kernel_read": "No stack is available; a process waits for a disk read.",
    "loading": "The trainer is still importing modules.",
    "unknown_place": "The trainer is stuck, but not in data loading, a checkpoint or a collective "
    "operation.",
}

ADVICE: dict[str, tuple[str, ...]] = {
    verdict.HANG_COLLECTIVE: (
        "Read the stack of the rank that differs: it shows the cause.",
        "Stop the run and resume it; the operation will not finish.",
    ),
    verdict.HANG_DATA: (
        "Check the storage that the data is read from, and the stacks of the workers.",
        "Stop the run and resume it once the storage responds.",
    ),
    verdict.HANG_CHECKPOINT: (
        "Check the disk that the checkpoints are written to: space, server, errors.",
        "Stop the run and resume it once the disk responds.",
    ),
    verdict.SLOW: ("Leave it running: it does not hang. Find what slows it down.",),
    verdict.STALL: (
        "Read the stacks; inspect the run again in a minute and compare.",
        "Stop the run and resume it if nothing has changed.",
    ),
    verdict.MOVING: (),
}
_ADVICE_FOR_ATTACHED: dict[str, tuple[str, ...]] = {
    verdict.HANG_COLLECTIVE: (
        ADVICE[verdict.HANG_COLLECTIVE][0],
        "The owner of the training has to restart it; the operation will not finish.",
    ),
    verdict.HANG_DATA: (
        ADVICE[verdict.HANG_DATA][0],
        "It may continue once the storage responds; otherwise its owner has to restart it.",
    ),
    verdict.HANG_CHECKPOINT: (
        ADVICE[verdict.HANG_CHECKPOINT][0],
        "It may continue once the disk responds; otherwise its owner has to restart it.",
    ),
    verdict.STALL: (
        ADVICE[verdict.STALL][0],
        "If nothing has changed, the owner of the training has to restart it.",
    ),
}
_STOPPED = "stopped_process"
_CONTINUE = "Resume the process as its owner: `kill -CONT {pid}` on its machine."
_SEVERITIES: dict[str, Severity] = {verdict.SLOW: "warning"}


def explain(verdict: Verdict) -> str:
    """The explanation of a verdict, with its numbers."""
    slots = {
        name: number_text(value) if isinstance(value, float) else value
        for name, value in verdict.slots.items()
    }
    return REASONS[verdict.reason].format_map(slots)


def advice(verdict: Verdict, *, ours: bool = True) -> tuple[str, ...]:
    """What to do about it; `ours` is false for an attached training, which can't be stopped or
    resumed by Trainmaster."""
    pid = stopped_pid(verdict)
    if pid is not None:
        return (_CONTINUE.format(pid=pid),)
    return (
        ADVICE[verdict.code]
        if ours
        else _ADVICE_FOR_ATTACHED.get(verdict.code, ADVICE[verdict.code])
    )


def sentences(code: str) -> tuple[str, ...]:
    """All templates of sentences that `explain` and `advice` may use for a verdict's code."""
    if code not in ADVICE:
        return ()
    return (*REASONS.values(), *ADVICE[code], *_ADVICE_FOR_ATTACHED.get(code, ()), _CONTINUE)


def stopped_pid(verdict: Verdict) -> int | None:
    """The pid that a signal or a debugger stopped; None for another verdict."""
    return (
        int(verdict.slots["pid"]) if verdict.reason == _STOPPED and "pid" in verdict.slots else None
    )


def as_finding(
    judged: Verdict, *, placement: int, attempt: int, step: int | None, ours: bool = True
) -> Finding | None:
    """The finding of a verdict at `step`; None if it names no problem."""
    if not judged.is_finding:
        return None
    slots: Mapping[str, float | int] = dict(judged.slots)
    return Finding(
        finding_id(placement, attempt, judged.code, step),
        judged.code,
        _SEVERITIES.get(judged.code, "critical"),
        judged.confidence,
        step,
        as_evidence(line.encode() for line in judged.evidence),
        explain(judged),
        advice=advice(judged, ours=ours),
        led_to=("stall",) if judged.code != verdict.SLOW else (),
        slots=slots,
    )

"""Memory by a trace of the training's own step, in place of the formulas."""

from __future__ import annotations

from dataclasses import replace

from trainer_runtime.core.answers.traced import GRADIENTS, MemoryTrace
from trainer_runtime.core.protocol.figures import gib_text
from trainmaster.plan.decisions.memory import GIB, Memory, Sharing
from trainmaster.plan.result import Ledger

TRACE = "trace"
_WHOLE = ("single", "ddp")


def is_of(trace: MemoryTrace | None, sharing: Sharing) -> bool:
    """Whether the trace is of processes that share the work this way."""
    return trace is not None and (trace.strategy, trace.recompute) == (
        sharing.strategy,
        sharing.recompute,
    )


def by_trace(formula: Memory, trace: MemoryTrace, micro_batch: int, sharing: Sharing) -> Memory:
    """The formula's estimate with the trace's figures. What no trace sees stays the formula's: the
    context, fragments, DDP's buckets, and state that is divided among processes.

    Of fewer examples than were traced the trace's share is an upper bound: what gradients take
    while activations go is subtracted in proportion.
    """
    state_gib, passing = formula.state_gib, trace.passing_bytes
    formula = replace(formula, copies_gib=0.0)
    if sharing.strategy in _WHOLE:
        passing = trace.beside_state_bytes
        buckets = trace.state[GRADIENTS] if sharing.strategy == "ddp" else 0
        state_gib = (sum(trace.state.values()) + buckets) / GIB
    passing_gib = passing / GIB * micro_batch / trace.micro_batch
    return replace(formula, state_gib=state_gib, activations_gib=passing_gib, logits_gib=0.0)


def record_trace(memory: Memory, trace: MemoryTrace, sharing: Sharing, ledger: Ledger) -> None:
    """Says what the estimate is made of."""
    is_whole = sharing.strategy in _WHOLE
    state = "" if is_whole else f", which {sharing.strategy} divides as the formulas have it"
    beside = "The context and fragments are the formulas'."
    if sharing.strategy == "ddp":
        beside = "The context, fragments and DDP's buckets are the formulas'."
    ledger.decide(
        "memory_gib",
        round(memory.total_gib, 2),
        f"A step of this script was traced uncompiled, {trace.micro_batch} at a time: state "
        f"{gib_text(memory.state_gib)}{state}; beside it {gib_text(memory.activations_gib)} at the "
        f"peak. {beside}",
        TRACE,
    )

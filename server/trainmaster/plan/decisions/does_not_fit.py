"""The refusal of a step that does not fit into memory, and what would fit."""

from __future__ import annotations

import math

from trainer_runtime.core.environment.gpus import GPUS
from trainer_runtime.core.protocol.figures import gib_text
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.memory import FRAGMENTS, Memory, Sharing
from trainmaster.plan.decisions.method import Method
from trainmaster.plan.decisions.strategy import room_gib
from trainmaster.plan.decisions.target import GPU_SHARE, Target
from trainmaster.plan.spec import TrainingSpec


def fewer_tokens(
    spec: TrainingSpec, method: Method, taken: Memory, generated: int, target: Target
) -> int:
    """`batch.tokens` with as many completions as there is room to write at once; 0 where it is not
    them that have none."""
    unit = math.lcm(method.group, target.processes)
    each_gib = FRAGMENTS * taken.activations_gib / max(1, generated)
    room = room_gib(target) - (taken.total_gib - FRAGMENTS * taken.activations_gib)
    count = int(room / each_gib) * target.processes if generated else 0
    return max(0, count - count % unit) * spec.data.seq_len


def what_fits(
    taken: Memory, fitting: int, target: Target, offloaded: Memory | None, tokens: int
) -> tuple[str, str]:
    """What would do, in sentences, and the field that it is about.

    Arguments:
        fitting: A smaller micro-batch that fits, or 0.
        offloaded: The memory with state in the hosts', where it can be.
        tokens: See `fewer_tokens`.
    """
    if fitting >= 1:
        fix, field = f"Set batch.micro_batch to at most {fitting}, or to auto.", "batch.micro_batch"
    elif tokens:
        fix = (
            f"Set batch.tokens to at most {tokens}: all completions of a step are written at once."
        )
        field = "batch.tokens"
    else:
        larger = [gpu for gpu in GPUS if gpu.memory_gib * GPU_SHARE >= taken.total_gib]
        gpu = min(larger, key=lambda gpu: gpu.memory_gib, default=None)
        fitting_gpu = f", or a GPU such as {gpu.name}" if gpu is not None else ""
        fix = f"Take a smaller model or a shorter data.seq_len{fitting_gpu}."
        field = "model"
    if offloaded is not None and offloaded.total_gib <= room_gib(target):
        fix += (
            " compute.strategy=zero3_offload with compute.activation_checkpointing=true takes "
            f"{gib_text(offloaded.total_gib)} of each GPU, and {gib_text(offloaded.offloaded_gib)} "
            "of the hosts' memory together."
        )
    return fix, field


def does_not_fit(
    taken: Memory, sharing: Sharing, trained: int, target: Target, *, fix: str, field: str
) -> PlanError:
    """The error, DOES_NOT_FIT, with the sizes of what a process holds."""
    sizes = (
        f"state {gib_text(taken.state_gib + taken.copies_gib)}, "
        f"activations {gib_text(taken.activations_gib)}, logits {gib_text(taken.logits_gib)}"
    )
    where = "of host memory" if target.device == "cpu" else f"on the {target.name}"
    each = f" in each of {sharing.processes} processes" if sharing.processes > 1 else ""
    by = f", by {sharing.strategy}" if sharing.strategy != "single" else ""
    return PlanError(
        "DOES_NOT_FIT",
        f"Training {trained:,} parameters takes about {gib_text(taken.total_gib)}{each} ({sizes})"
        f"{by}, but only {gib_text(room_gib(target))} {where} can be used.",
        fix,
        field=field,
    )

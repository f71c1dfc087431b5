"""The table of rungs. No patch changes the tokens of a step, the sequence length or the data.

Rungs whose fields a configuration lacks, or whose rule changes nothing, are left out, and so are
special ones that the framework's record doesn't name. Attached trainings and programs get none.
"""

from __future__ import annotations

from collections.abc import Callable

from trainer_runtime.core.diagnosis.remedies import rules
from trainer_runtime.core.diagnosis.remedies.rung import Changes, Config, Rung, value_at
from trainer_runtime.core.protocol.finding import Patch


def patches(code: str, config: Config | None) -> tuple[Patch, ...]:
    """The rungs for `code` that the resolved `config` supports, mildest first."""
    if config is None:
        return ()
    found = []
    for rung in LADDER:
        changes = rung.changes(config) if code in rung.codes else {}
        if changes:
            expected = {path: value_at(config, path) for path in changes}
            found.append(Patch(rung.id, changes, expected, rung.why))
    return tuple(found)


def _rung(
    id: str,
    codes: str,
    why: str,
    rule: Callable[[Config], Changes],
    *,
    is_special: bool = False,
) -> Rung:
    return Rung(id, frozenset(codes.split()), why, rule, is_special)


LADDER: tuple[Rung, ...] = (
    _rung(
        "halve_micro_batch",
        "cuda_oom",
        "Fewer sequences at a time need less memory; accumulation keeps the batch size.",
        rules.split_micro_batch,
    ),
    _rung(
        "halve_micro_batch_on_cpu",
        "host_oom",
        "On the CPU, fewer sequences at a time need less host memory; accumulation keeps the "
        "batch size.",
        rules.split_on_the_processor,
    ),
    _rung(
        "activation_checkpointing",
        "cuda_oom",
        "Activations are recomputed in the backward pass instead of kept; about a third slower.",
        rules.checkpoint_activations,
        is_special=True,
    ),
    _rung(
        "quantize_base",
        "cuda_oom",
        "As nf4 the frozen base weights take a quarter of their memory.",
        rules.quantize_base,
        is_special=True,
    ),
    _rung(
        "next_zero_stage",
        "cuda_oom",
        "Each rank keeps only its shard of optimizer state and gradients, then of the weights; the "
        "last stage offloads them to host memory, which is much slower.",
        rules.next_zero_stage,
        is_special=True,
    ),
    _rung(
        "part_over_ranks",
        "cuda_oom",
        "Each rank keeps only its shard of optimizer state, gradients and weights.",
        rules.part_over_ranks,
        is_special=True,
    ),
    _rung(
        "bf16",
        "nan_loss nan_grad fp16_overflow fp16_scale_floor",
        "bf16 has the range of fp32 and needs no loss scale; requires an Ampere GPU or newer.",
        rules.to_bf16,
    ),
    _rung(
        "fp32",
        "fp16_scale_floor nan_grad",
        "fp32 does not overflow as fp16 does; it is slower and needs more memory.",
        rules.to_fp32,
    ),
    _rung(
        "clip_gradients",
        "nan_loss nan_grad loss_spike",
        "Clipping at 1.0 limits the effect of a single bad batch.",
        rules.clip_at_one,
    ),
    _rung(
        "halve_lr",
        "nan_loss nan_grad fp16_scale_floor loss_spike",
        "A learning rate that is too high is the most common cause.",
        rules.lower_rate,
    ),
    _rung(
        "keep_fewer_checkpoints",
        "disk_full disk_quota disk_filling",
        "Only the newest verified checkpoint and the best are kept.",
        rules.keep_fewer,
    ),
    _rung(
        "no_compile",
        "triton_missing compiler_missing",
        "Training without torch.compile needs no compiler; it is slower.",
        rules.no_compile,
    ),
    _rung(
        "not_deterministic",
        "nondeterministic_operation",
        "The operation then runs; the last bits of a resumed run's losses may differ.",
        rules.not_deterministic,
    ),
    # Only findings of series propose the following; see rewinds.py.
    _rung(
        "tighter_clip",
        "",
        "Clipping at half the norm limits the effect of a single bad batch.",
        rules.tighter_clip,
    ),
    _rung(
        "denser_checkpoints",
        "",
        "With twice as many checkpoints a rewind loses less.",
        rules.denser_checkpoints,
    ),
    _rung(
        "raise_beta",
        "",
        "Twice the beta keeps the policy closer to its reference model.",
        rules.raise_beta,
        is_special=True,
    ),
    _rung(
        "double_micro_batch",
        "",
        "Twice the micro-batch and half the accumulation: the same step in fewer kernel launches.",
        rules.double_micro_batch,
    ),
)

RUNGS = {rung.id: rung for rung in LADDER}

"""The one table of rungs. Patches keep the training's meaning: tokens of a step, length, data stay.

A rung whose fields a configuration lacks, or whose rule changes nothing, is left out: a framework
gets the ladder that its config.json has. A training that somebody else started has none.
"""

from __future__ import annotations

from collections.abc import Callable

from trainer_runtime.core.diagnosis.remedies import rules
from trainer_runtime.core.diagnosis.remedies.rung import Changes, Config, Rung, value_at
from trainer_runtime.core.protocol.finding import Patch

FRAMEWORKS = frozenset({"nanogpt", "litgpt", "hf", "trl"})
# Those that DeepSpeed serves, through accelerate.
_OF_TRAINER = frozenset({"hf", "trl"})
_NOT_NANOGPT = FRAMEWORKS - {"nanogpt"}


def patches(code: str, config: Config | None) -> tuple[Patch, ...]:
    """The rungs for `code` that `config` (resolved) has, the gentlest first."""
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
    frameworks: frozenset[str] = FRAMEWORKS,
) -> Rung:
    return Rung(id, frozenset(codes.split()), frameworks, why, rule)


LADDER: tuple[Rung, ...] = (
    _rung(
        "halve_micro_batch",
        "cuda_oom",
        "Fewer sequences at a time need less memory; accumulation keeps the batch as it is.",
        rules.split_micro_batch,
    ),
    _rung(
        "halve_micro_batch_on_cpu",
        "host_oom",
        "Where the processor trains, fewer sequences at a time need less of the host's memory; "
        "accumulation keeps the batch as it is.",
        rules.split_on_the_processor,
    ),
    _rung(
        "activation_checkpointing",
        "cuda_oom",
        "Activations are computed again in the backward pass instead of kept; a third slower.",
        rules.checkpoint_activations,
        frameworks=_NOT_NANOGPT,
    ),
    _rung(
        "quantize_base",
        "cuda_oom",
        "The base weights that the adapters stand on take a quarter of their memory as nf4.",
        rules.quantize_base,
        frameworks=frozenset({"litgpt", "trl"}),
    ),
    _rung(
        "next_zero_stage",
        "cuda_oom",
        "Each rank keeps only its part of optimizer state and gradients, then of the weights; then "
        "the host's memory holds them, which is slower by far.",
        rules.next_zero_stage,
        frameworks=_OF_TRAINER,
    ),
    _rung(
        "part_over_ranks",
        "cuda_oom",
        "Each rank keeps only its part of optimizer state, gradients and weights.",
        rules.part_over_ranks,
        frameworks=frozenset({"litgpt"}),
    ),
    _rung(
        "bf16",
        "nan_loss nan_grad fp16_overflow fp16_scale_floor",
        "bf16 has the range of fp32 and needs no loss scale; the GPU has to be Ampere or newer.",
        rules.to_bf16,
    ),
    _rung(
        "fp32",
        "fp16_scale_floor nan_grad",
        "fp32 can't overflow as fp16 does; it is slower and needs more memory.",
        rules.to_fp32,
    ),
    _rung(
        "clip_gradients",
        "nan_loss nan_grad loss_spike",
        "Clipping at 1.0 keeps one bad batch from moving the weights far.",
        rules.clip_at_one,
    ),
    _rung(
        "halve_lr",
        "nan_loss nan_grad fp16_scale_floor loss_spike",
        "A rate that is too high is the most common reason.",
        rules.half_the_rate,
    ),
    _rung(
        "keep_fewer_checkpoints",
        "disk_full disk_quota disk_filling",
        "Only the newest verified checkpoint and the best stay.",
        rules.keep_fewer,
    ),
    _rung(
        "no_compile",
        "triton_missing compiler_missing",
        "Without torch.compile no compiler is needed; training is slower.",
        rules.no_compile,
    ),
    # Only findings of series propose what follows; see rewinds.py.
    _rung(
        "tighter_clip",
        "",
        "Clipping at half the norm keeps one bad batch from moving the weights far.",
        rules.tighter_clip,
    ),
    _rung(
        "denser_checkpoints",
        "",
        "Saving twice as often lets a rewind lose less.",
        rules.denser_checkpoints,
    ),
    _rung(
        "raise_beta",
        "",
        "Twice the beta holds the policy closer to the model that it began with.",
        rules.raise_beta,
        frameworks=frozenset({"trl"}),
    ),
    _rung(
        "double_micro_batch",
        "",
        "Twice the sequences at once and half the accumulation: the same step in fewer launches.",
        rules.double_micro_batch,
    ),
)

RUNGS = {rung.id: rung for rung in LADDER}

"""How much memory and disk a training takes.

Formulas: Korthikanti et al. 2022 (arXiv 2205.05198), table 2, for activations with fused
attention and without dropout; fitted within some 10 % to published peaks on GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.plan.architecture import Architecture

GIB = 2**30
# fp32 weights, gradients and Adam's two moments; autocast's copies come and go with activations.
STATE_BYTES_PER_PARAMETER = 16
# What a checkpoint holds of these: all but the gradients.
CHECKPOINT_BYTES_PER_PARAMETER = 12
EXPORT_BYTES_PER_PARAMETER = 4
SHARD_BYTES_PER_TOKEN = 2
# The allocator's fragments, and CUDA's context or PyTorch's own libraries in host memory.
_FRAGMENTS = 1.03
_CONTEXT_GIB = {"cuda": 0.6, "cpu": 0.4}
# Logits, their fp32 copy and gradients, as a loss that is not fused holds them at once.
_LOGITS_BYTES = 12


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak memory by what takes it, in GiB."""

    state_gib: float
    activations_gib: float
    logits_gib: float
    context_gib: float

    @property
    def total_gib(self) -> float:
        dynamic = self.state_gib + self.activations_gib + self.logits_gib
        return dynamic * _FRAGMENTS + self.context_gib


def memory(
    model: Architecture, parameters: int, micro_batch: int, precision: str, device: str
) -> Memory:
    """Peak memory of one process that trains with `micro_batch` sequences at a time."""
    tokens = micro_batch * model.seq_len
    # The formulas count half-precision elements of two bytes.
    element = 2 if precision == "fp32" else 1
    activations = tokens * model.n_layer * _activation_bytes(model) * element
    logits = tokens * model.vocab_size * _LOGITS_BYTES
    return Memory(
        state_gib=parameters * STATE_BYTES_PER_PARAMETER / GIB,
        activations_gib=activations / GIB,
        logits_gib=logits / GIB,
        context_gib=_CONTEXT_GIB[device],
    )


def _activation_bytes(model: Architecture) -> int:
    """Bytes kept for the backward pass, per token and block, in half precision."""
    if model.style == "gpt2":
        return 14 * model.d_model + 4 * model.kv_width + 4 * model.d_ff
    return 12 * model.d_model + 4 * model.kv_width + 6 * model.d_ff

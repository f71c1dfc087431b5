"""Estimates the memory and disk of a training.

Formulas: Korthikanti et al. 2022 (arXiv 2205.05198), table 2, for activations with fused
attention and without dropout; Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 5, for
state that several processes share. Fitted within some 10 % to published peaks on GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainmaster.plan.architecture import Architecture, block_matrix_parameters, parameters
from trainmaster.plan.spec import TrainingSpec

GIB = 2**30
# fp32 weights and gradients; autocast's copies come and go with activations. The optimizer's state
# comes on top, of Adam two moments.
_WEIGHT_BYTES, _GRADIENT_BYTES = 4, 4
ADAM_BYTES = 8
# Of `checkpoint.ema`, in fp32.
AVERAGE_BYTES = 4
STATE_BYTES_PER_PARAMETER = _WEIGHT_BYTES + _GRADIENT_BYTES + ADAM_BYTES
EXPORT_BYTES_PER_PARAMETER = 4
SHARD_BYTES_PER_TOKEN = 2
# DDP's buckets: gradients on their way to the other processes.
_BUCKET_BYTES = 4
# ZeRO-1 and -2: what each process holds by itself; weights in fp32 and the optimizer's state are
# shared by all of them.
_ZERO_OWN_BYTES = 6
# Of weights that were brought together for the pass of one layer, with their gradients.
_GATHERED_BYTES = 8
# The allocator's fragments, and CUDA's context or PyTorch's own libraries in host memory.
_FRAGMENTS = 1.03
_CONTEXT_GIB = {"cuda": 0.6, "cpu": 0.4}
# Logits, their fp32 copy and gradients, as a loss that is not fused holds them at once.
_LOGITS_BYTES = 12
_PARTED = ("fsdp", "zero3", "zero3_offload")


@dataclass(frozen=True, slots=True)
class Sharing:
    """How `processes` share the work, and whether they recompute activations."""

    strategy: str = "single"
    processes: int = 1
    recompute: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """What a training holds in memory, before it is shared among processes.

    `model` is None where its sizes aren't known: then only state is counted. `trained` parameters
    have gradients and moments; `frozen_bytes` are of weights that stand by, the base of an adapter
    or a reference model. An example is `sequences` sequences, 2 for a pair; `logits`: whether the
    output is a choice of tokens, of `logits_at_once` tokens at most; `scores`: whether attention is
    not fused and keeps its weights. `optimizer_bytes`: of the optimizer's state, for each trained
    parameter.
    """

    model: Architecture | None
    trained: int
    frozen_bytes: float = 0.0
    sequences: int = 1
    logits: bool = True
    scores: bool = False
    optimizer_bytes: float = ADAM_BYTES
    logits_at_once: int | None = None

    @property
    def state_bytes(self) -> float:
        """Weights, gradients and the optimizer's state of all trained parameters."""
        return self.trained * (_WEIGHT_BYTES + _GRADIENT_BYTES + self.optimizer_bytes)


def kept_bytes(spec: TrainingSpec, model: Architecture | None) -> float:
    """What is kept for each trained parameter beside weight and gradient: the optimizer's
    state, and the average of `checkpoint.ema`."""
    return optimizer_bytes(spec.optimizer.name, model) + _average_bytes(spec)


def optimizer_bytes(name: str, model: Architecture | None) -> float:
    """The state that an optimizer has for each parameter of a model, on average.

    Where the sizes of the model are not known, none of its parameters counts as a block's matrix.
    """
    record = OPTIMIZERS[name]
    if record.matrix_bytes is None or model is None:
        return record.state_bytes
    share = block_matrix_parameters(model) / parameters(model)
    return share * record.matrix_bytes + (1 - share) * record.state_bytes


def checkpoint_bytes(spec: TrainingSpec, model: Architecture | None) -> float:
    """What a checkpoint holds for each trained parameter: all but the gradients."""
    name = spec.optimizer.name
    kept = OPTIMIZERS[name].checkpoint_bytes
    own = _WEIGHT_BYTES + (optimizer_bytes(name, model) if kept is None else kept)
    return own + _average_bytes(spec)


def _average_bytes(spec: TrainingSpec) -> float:
    return 0.0 if spec.checkpoint.ema is None else AVERAGE_BYTES


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak memory of one process by what takes it, in GiB; `offloaded_gib` is what all processes
    together keep in the host's memory instead."""

    state_gib: float
    activations_gib: float
    logits_gib: float
    context_gib: float
    offloaded_gib: float = 0.0

    @property
    def total_gib(self) -> float:
        dynamic = self.state_gib + self.activations_gib + self.logits_gib
        return dynamic * _FRAGMENTS + self.context_gib


def memory(
    load: Load, micro_batch: int, precision: str, device: str, sharing: Sharing | None = None
) -> Memory:
    """Peak memory of each process that trains with `micro_batch` examples at a time."""
    sharing = sharing or Sharing()
    activations = logits = 0.0
    if load.model is not None:
        tokens = micro_batch * load.sequences * load.model.seq_len
        # The formulas count half-precision elements of two bytes.
        element = 2 if precision == "fp32" else 1
        activations = tokens * _activation_bytes(load, load.model, sharing.recompute) * element
        at_once = min(tokens, load.logits_at_once or tokens)
        logits = at_once * load.model.vocab_size * _LOGITS_BYTES if load.logits else 0.0
    offloads = sharing.strategy == "zero3_offload"
    whole = load.state_bytes + load.frozen_bytes
    return Memory(
        state_gib=_state_bytes(load, sharing) / GIB,
        activations_gib=activations / GIB,
        logits_gib=logits / GIB,
        context_gib=_CONTEXT_GIB[device],
        offloaded_gib=whole / GIB if offloads else 0.0,
    )


def _state_bytes(load: Load, sharing: Sharing) -> float:
    """Of one process: weights, gradients, moments, and what stands by."""
    count, processes = load.trained, sharing.processes
    if sharing.strategy == "single":
        return load.state_bytes + load.frozen_bytes
    if sharing.strategy == "ddp":
        return load.state_bytes + count * _BUCKET_BYTES + load.frozen_bytes
    if sharing.strategy not in _PARTED:
        own = _ZERO_OWN_BYTES + (_WEIGHT_BYTES + load.optimizer_bytes) / processes
        return count * own + load.frozen_bytes
    kept = 0.0
    if sharing.strategy != "zero3_offload":
        kept = (load.state_bytes + load.frozen_bytes) / processes
    return kept + _gathered_bytes(load.model)


def _gathered_bytes(model: Architecture | None) -> float:
    """One embedding and two layers, which each process holds whole while it computes them."""
    if model is None:
        return 0.0
    layer = model.d_model * (2 * model.d_model + 2 * model.kv_width + 3 * model.d_ff)
    return _GATHERED_BYTES * (model.vocab_size * model.d_model + 2 * layer)


def _activation_bytes(load: Load, model: Architecture, recompute: bool) -> int:
    """Bytes kept for the backward pass, per token, in half precision.

    Recomputed: the input of each block, and everything of the block being computed.
    """
    of_block = (14 if model.style == "gpt2" else 12) * model.d_model + 4 * model.kv_width
    of_block += (6 if model.is_gated else 4) * model.d_ff
    if model.style == "modern":  # normalised queries and keys, in fp32
        of_block += 8 * (model.d_model + model.kv_width)
    if load.scores:
        of_block += 2 * model.n_head * model.seq_len
    if recompute:
        return model.n_layer * 2 * model.d_model + of_block
    return model.n_layer * of_block

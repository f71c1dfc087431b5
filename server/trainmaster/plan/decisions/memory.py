"""Estimates the memory and disk of a training.

Formulas: Korthikanti et al. 2022 (arXiv 2205.05198), table 2, for activations with fused
attention and without dropout; Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 5, for
state that several processes share. `tests/plan/test_published_runs.py` holds them beside published
peaks (docs/design/planning.md has the errors).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainmaster.plan.architecture import (
    Architecture,
    block_matrix_parameters,
    held_matrix_parameters,
    parameters,
)
from trainmaster.plan.spec import TrainingSpec

GIB = 2**30
# fp32 weights and gradients; autocast's copies come and go with activations. The optimizer's state
# comes on top, of Adam two moments.
_WEIGHT_BYTES, _GRADIENT_BYTES = 4, 4
ADAM_BYTES = 8
_REFERENCE_BYTES, _COPIED_BYTES = 2, 2
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
# Weights that were brought together for the pass of one layer, with their gradients, in half
# precision; in fp32 twice as much.
_GATHERED_BYTES = 4
# The allocator's fragments, and CUDA's context or PyTorch's own libraries in host memory.
FRAGMENTS = 1.03
_CONTEXT_GIB = {"cuda": 0.6, "cpu": 0.4}
# Logits, their fp32 copy and gradients, as a loss that is not fused holds them at once; and as a
# compiled one does.
_LOGITS_BYTES, _COMPILED_LOGITS_BYTES = 12, 6
# Of a loss by tiles: the most tokens of one, and its columns, whose products stay in half
# precision; for each feature of a token a copy, and its gradient in fp32; and fp32 gradients of a
# trained output layer before they are added up.
_TILE_TOKENS, _TILE_COLUMNS, _TILE_BYTES = 4096, 32768, 2
_SCORED_BYTES, _SUMMED_BYTES = 6, 4
# A base in 4 bits: for each feature of a layer's input, what its matrix products keep; and the
# output layer, unpacked to half precision.
_QUANTIZED_BYTES, _UNPACKED_BYTES = 12, 2
# What a token's way to an expert and back keeps for each of its features.
_ROUTED_BYTES = 5
# Of attention in parts: its weights in half precision; with a softmax in fp32; with capped scores;
# T5's, with dropout's mask and result.
WEIGHT_SCORES, EAGER_SCORES, CAPPED_SCORES, DROPPED_SCORES = 2, 6, 8, 9
PARTED = ("fsdp", "zero3", "zero3_offload")
# Of what is kept for the backward pass, the share that selective recomputation keeps: every second
# matrix product, and attention's output.
_SELECTIVE = 0.5
# Nine of ten published peaks are no more than this share of activations and logits below the
# estimate (state is never less), and of all of it above.
_BELOW, _ABOVE = 0.18, 0.20


@dataclass(frozen=True, slots=True)
class Sharing:
    """How `processes` share the work, and whether they recompute activations: all of them, or by
    `selective` those that are cheap to recompute.

    `tensor`, `pipeline`, `context`: over how many processes the matrices, the layers and the
    sequences are parted; what remains of `processes` shares the state by `strategy`.
    """

    strategy: str = "single"
    processes: int = 1
    recompute: bool = False
    selective: bool = False
    tensor: int = 1
    pipeline: int = 1
    context: int = 1

    @property
    def replicas(self) -> int:
        """Processes that share the state of the same part of the model."""
        return max(1, self.processes // (self.tensor * self.pipeline))


@dataclass(frozen=True, slots=True)
class Load:
    """What a training holds in memory, before it is shared among processes.

    `model` is None where its sizes aren't known: then only state is counted. `trained` parameters
    have gradients and moments; `frozen_bytes` are of weights that stand by, the base of an adapter.
    An example is `sequences` sequences, 2 for a pair; `logits`: whether the output is a choice of
    tokens, of `logits_at_once` tokens at most, or `tiled`, by parts of the vocabulary as well;
    `score_bytes`: what attention that is not fused keeps, for each head and position that a token
    sees. `optimizer_bytes`: of the optimizer's state, for each trained parameter. `compiled`:
    elementwise operations are fused, and keep less. `quantized`: the frozen weights are in 4 bits,
    and by `quantized_output` those of the output layer as well. `merged_bytes`: of weights that
    layers make again in each pass, and keep as activations. `reference`: parameters of a model
    beside the trained one. `generated`: sequences that a process completes at once before it learns
    from them, whose keys and values are kept meanwhile.
    """

    model: Architecture | None
    trained: int
    frozen_bytes: float = 0.0
    sequences: int = 1
    logits: bool = True
    score_bytes: int = 0
    optimizer_bytes: float = ADAM_BYTES
    logits_at_once: int | None = None
    tiled: bool = False
    compiled: bool = False
    quantized: bool = False
    quantized_output: bool = False
    merged_bytes: float = 0.0
    reference: int = 0
    generated: int = 0

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
    together keep in the host's memory instead.

    Where activations are recomputed, a layer's and the logits never exist at the same time:
    `logits_gib` is what the logits take beyond the layer's. `copies_gib`: of weights in half
    precision, which autocast keeps from their first use to the end of the forward pass, and the
    graph until the backward pass.
    """

    state_gib: float
    activations_gib: float
    logits_gib: float
    context_gib: float
    offloaded_gib: float = 0.0
    copies_gib: float = 0.0

    @property
    def total_gib(self) -> float:
        dynamic = self.state_gib + self.copies_gib + self.activations_gib + self.logits_gib
        return dynamic * FRAGMENTS + self.context_gib

    @property
    def range_gib(self) -> tuple[float, float]:
        """What holds the peak of nine in ten trainings."""
        least = self.state_gib + self.copies_gib + self.context_gib
        passing = self.activations_gib + self.logits_gib
        return least + passing * (1 - _BELOW), self.total_gib * (1 + _ABOVE)


def memory(
    load: Load, micro_batch: int, precision: str, device: str, sharing: Sharing | None = None
) -> Memory:
    """Peak memory of each process that trains with `micro_batch` examples at a time."""
    sharing = sharing or Sharing()
    # The formulas count half-precision elements of two bytes.
    element = 2 if precision == "fp32" else 1
    kept = passing = logits = 0.0
    if load.model is not None:
        tokens = micro_batch * load.sequences * load.model.seq_len / sharing.context
        kept, passing = (
            tokens * count * element / sharing.tensor
            for count in _activation_bytes(load, load.model, sharing, precision)
        )
        of_layer = load.merged_bytes / load.model.n_layer  # and as much of gradients, of a layer
        kept += 0.0 if sharing.recompute else load.merged_bytes
        passing += (1 + sharing.recompute) * of_layer
        logits = _logits_bytes(load, load.model, tokens / sharing.tensor, element)
    kept = max(kept, _generating_bytes(load, sharing, element) - max(passing, logits))
    offloads = sharing.strategy == "zero3_offload"
    standing = load.frozen_bytes + _reference_bytes(load, sharing, element)
    whole = load.state_bytes + standing
    passing_weights = _passing_weights_bytes(load, sharing) * element / sharing.tensor
    return Memory(
        state_gib=(_state_bytes(load, sharing, standing) + passing_weights) / GIB,
        activations_gib=(kept + passing) / GIB,
        logits_gib=max(0.0, logits - passing) / GIB,
        context_gib=_CONTEXT_GIB[device],
        offloaded_gib=whole / GIB if offloads else 0.0,
        copies_gib=_copied_bytes(load, sharing, precision, max(passing, logits)) / GIB,
    )


def _copied_bytes(load: Load, sharing: Sharing, precision: str, passing: float) -> float:
    """Autocast's copies of weights that are trained in fp32. Of recomputed layers they are gone in
    the backward pass, before most of what is `passing` then exists."""
    model = load.model
    is_cast = precision != "fp32" and sharing.strategy in ("single", "ddp") and not load.compiled
    if model is None or not is_cast or load.trained < parameters(model):
        return 0.0
    copies = _COPIED_BYTES * (held_matrix_parameters(model) + model.vocab_size * model.d_model)
    return max(0.0, copies - passing / 2) if sharing.recompute else float(copies)


def _logits_bytes(load: Load, model: Architecture, tokens: float, element: int) -> float:
    if not load.logits:
        return 0.0
    if load.tiled:
        tile = min(tokens, _TILE_TOKENS) * _TILE_COLUMNS * _TILE_BYTES * element
        is_trained = load.trained >= parameters(model)
        summed = _SUMMED_BYTES * model.vocab_size * model.d_model if is_trained else 0
        return tile + tokens * _SCORED_BYTES * model.d_model + summed
    at_once = min(tokens, load.logits_at_once or tokens) * model.logits_per_token
    of_logit = _COMPILED_LOGITS_BYTES if load.compiled else _LOGITS_BYTES
    return at_once * model.vocab_size * of_logit


def _generating_bytes(load: Load, sharing: Sharing, element: int) -> float:
    """Keys and values of all sequences, the logits of a token of each, and under ZeRO-3 the whole
    of the weights, which are brought together for it."""
    model = load.model
    if model is None or not load.generated:
        return 0.0
    half = 2 * element
    of_token = 2 * model.n_layer * model.kv_width * half
    gathered = 0
    if sharing.strategy.startswith("zero3"):
        embeddings = model.embeddings * model.vocab_size * model.d_model
        gathered = held_matrix_parameters(model) + embeddings
    each = of_token * model.seq_len + _LOGITS_BYTES * model.vocab_size
    return float(load.generated * each + half * gathered)


def _reference_bytes(load: Load, sharing: Sharing, element: int) -> float:
    """DeepSpeed casts it to half precision, and the others keep it as it was loaded."""
    is_cast = sharing.strategy.startswith("zero")
    return float(load.reference * (_REFERENCE_BYTES * element if is_cast else _WEIGHT_BYTES))


def _state_bytes(load: Load, sharing: Sharing, standing: float) -> float:
    """Of one process: weights, gradients, moments, and what is `standing` by."""
    if sharing.strategy == "single":
        return load.state_bytes + standing
    parts = sharing.tensor * sharing.pipeline
    count, state = load.trained / parts, load.state_bytes / parts
    frozen = standing / parts
    if sharing.strategy == "ddp":
        return state + count * _BUCKET_BYTES + frozen
    if sharing.strategy not in PARTED:
        own = _ZERO_OWN_BYTES + (_WEIGHT_BYTES + load.optimizer_bytes) / sharing.replicas
        return count * own + frozen
    return 0.0 if sharing.strategy == "zero3_offload" else (state + frozen) / sharing.replicas


def _passing_weights_bytes(load: Load, sharing: Sharing) -> float:
    """Copies that a process holds while it computes with them: of parted weights the embeddings and
    two layers, with the gradients of what is trained; of quantized ones the output layer."""
    model = load.model
    if model is None:
        return 0.0
    embedding = model.vocab_size * model.d_model
    if sharing.strategy not in PARTED:
        return float(_UNPACKED_BYTES * embedding) if load.quantized_output else 0.0
    layers = 2 * held_matrix_parameters(model) / model.blocks
    trained = min(1.0, load.trained / parameters(model))
    return _GATHERED_BYTES * (1 + trained) / 2 * (embedding * model.embeddings + layers)


def _activation_bytes(
    load: Load, model: Architecture, sharing: Sharing, precision: str
) -> tuple[float, float]:
    """Bytes per token in half precision: kept until the backward pass, and of one layer that is
    recomputed."""
    of_block = 12.0 * model.d_model + 4 * model.kv_width + (6 if model.is_gated else 4) * model.d_ff
    fused = of_block
    if model.is_gated and not load.compiled:
        # RMSNorm computes in fp32, and the gate's activation is kept beside its input.
        of_block += 8 * model.d_model + 2 * model.d_ff
        is_autocast = precision != "fp32" and sharing.strategy in ("single", "ddp")
        if is_autocast and load.trained >= parameters(model):  # what blocks pass on is in fp32
            of_block += 10 * model.d_model
    if model.style == "modern":  # normalised queries and keys, in fp32
        of_block += 8 * (model.d_model + model.kv_width)
    if load.quantized:
        of_block += _QUANTIZED_BYTES * model.d_model
    if not load.compiled:
        of_heads = model.query_width + model.kv_width
        layer = model.layer
        of_block += layer.kept_bytes * model.d_model + layer.head_kept_bytes * of_heads
    if model.experts is not None:  # a token's features once more for each of its experts
        routed = model.experts.active * model.experts.layers / model.n_layer
        of_block += _ROUTED_BYTES * model.d_model * routed
    of_block += load.score_bytes * model.n_head * model.seq_len
    if sharing.recompute:
        return model.blocks_per_token * 2 * model.d_model, of_block
    if sharing.selective:
        return model.blocks_per_token * fused * _SELECTIVE, 0.0
    return model.blocks_per_token * of_block, 0.0

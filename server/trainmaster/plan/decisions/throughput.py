"""Estimates the throughput: from a measurement if there is one, else from a fitted model.

The model adds up the time of a token: matrix products and attention at the rates that GPUs reach,
what elementwise operations read and write at the memory's, and the weights and gradients that
processes exchange. Constants are fitted to llm-foundry's published table, and the factors of
compiling, fp8 and a power limit to torchtitan's; `tests/plan/test_published_runs.py` holds it
beside these and others (docs/design/planning.md has the errors).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trainer_runtime.core.environment.gpus import Gpu
from trainmaster.plan.architecture import (
    TRAINING_PASSES,
    Architecture,
    block_matrix_parameters,
    flops_per_token,
    held_matrix_parameters,
)
from trainmaster.plan.decisions.memory import PARTED, Sharing
from trainmaster.plan.decisions.method import Method
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.facts import Calibration

# Of the peak: large matrix products, and fused attention, of which both halves are counted.
# Older GPUs sustain less than their data sheets have: a V100 83 of 125 TFLOP/s (Markidis et al.
# 2018); a T4 24 of 65, at its 70 W (NVIDIA's developer forum, thread 264462); a P100 half, since
# products of fp16 are summed in fp32 at that rate. Attention is slower by as much.
_MATRICES = {"a100": 0.88, "h100": 0.77, "h100-96": 0.66, "v100": 0.66, "t4": 0.37, "p100": 0.44}
_ATTENTION = {"a100": 0.56, "h100": 0.37, "h100-96": 0.37, "v100": 0.42, "t4": 0.24, "p100": 0.28}
_LIKE_A100 = (
    "a100",
    "a100-40",
    "a10",
    "a10g",
    "a30",
    "a40",
    "a6000",
    "3090",
)
_ALIKE = {**dict.fromkeys(_LIKE_A100, "a100"), "v100-16": "v100"}
# The width at which matrix products reach half of that.
_HALF_WIDTH = 120.0
# Bytes that elementwise operations move for each element of a layer's activations and of the
# logits, forward and backward; for each feature that goes into an adapter or comes out of it, which
# PEFT computes in fp32; and the share of it that compiled ones move.
_MOVED_BYTES = 21.0
_ADAPTED_BYTES = 96.0
_COMPILED = 0.5
_GATED = 18
_FP8_GAIN = 1.7
# Launches of a layer's kernels, forward and backward, which small steps wait for: some 80 of 5
# microseconds.
_LAUNCHES_S = 4e-4
# Bytes per second between the GPUs of a node: over NVLink some 80 % of a direction's rate, else
# over PCIe.
_NVLINK = {"a100": 2.4e11, "a100-40": 2.4e11, "v100": 1.2e11, "b200": 7.2e11, "gb200": 7.2e11}
_NVLINK |= {"h100": 3.6e11, "h100-96": 3.6e11, "h200": 3.6e11}
_PCIE = 2.0e10
# Per parameter and micro-batch: weights gathered twice and gradients parted, or gradients alone.
_GATHERED_BYTES, _REDUCED_BYTES = 6, 4
# Per parameter that a process holds in the host's memory: what its optimizer reads and writes there
# and what crosses PCIe, at the slower of both.
_OFFLOADED_BYTES = 34
# The share of a step that is its backward pass.
_BACKWARD = 2 / 3
# Of a step, for each doubling of the processes beyond a node's.
_PER_DOUBLING = 0.014
_NODE_PROCESSES = 8
_USUAL_TOKENS = 16384
SPREAD_MODELLED = 0.20
_SPREAD_MEASURED = 0.10


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second with the range it is expected in; `mfu` is None for CPUs."""

    tokens_per_s: float
    low: float
    high: float
    mfu: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Step:
    """How a step is computed: `tokens` at a time by each process, of a micro-batch; `passes` as
    `Method` counts them, of `frozen` weights; `adapted` features that go into adapters and come out
    of them, and `merged_bytes` of experts with their adapters, made again in each pass."""

    sharing: Sharing = field(default_factory=Sharing)
    tokens: int = _USUAL_TOKENS
    precision: str = "bf16"
    compiled: bool = False
    passes: int = TRAINING_PASSES
    frozen: bool = False
    adapted: int = 0
    merged_bytes: float = 0.0

    @property
    def layer_passes(self) -> float:
        """Forward passes that the layers' arithmetic takes the time of, with what is recomputed.

        Frozen weights count as if they saved a pass of attention too: published adapters are
        trained as fast as that.
        """
        recomputed = 0.5 if self.sharing.selective else 0.0
        return self.passes - self.frozen + (1.0 if self.sharing.recompute else recomputed)


def throughput(
    model: Architecture | None,
    method: Method,
    target: Target,
    step: Step,
    calibration: Calibration | None,
) -> Throughput | None:
    """The expected speed of all processes; None without a measurement or a model.

    A measurement is of the same method, number of processes and strategy.
    """
    if model is None:
        return None
    per_token = flops_per_token(model, method.passes, frozen=method.has_adapter)
    gpu = target.gpu
    processes = step.sharing.processes
    measured = (
        calibration.flops_per_s(target.name, target.precision) if calibration is not None else None
    )
    if measured is not None:
        mfu = measured / (gpu.peak_flops * processes) if gpu is not None else None
        return _throughput(measured / per_token, mfu, _SPREAD_MEASURED, "earlier runs")
    # The model was fitted to half-precision trainings on GPUs, none of which generated texts.
    if gpu is None or target.precision == "fp32" or method.group > 1:
        return None
    mfu = modelled_mfu(model, gpu, step)
    speed = mfu * gpu.peak_flops * processes / (per_token * method.sequences)
    return _throughput(speed, mfu, SPREAD_MODELLED, "a model fitted to published throughput")


def modelled_mfu(model: Architecture, gpu: Gpu, step: Step | None = None) -> float:
    """Share of the peak that one GPU reaches, by what a token's arithmetic would take at it."""
    step = step or Step()
    seconds = _computing_s(model, gpu, step) + _exchanging_s(model, gpu, step)
    beyond = max(0.0, math.log2(step.sharing.processes / _NODE_PROCESSES))
    slower = 1 + _PER_DOUBLING * beyond
    per_token = flops_per_token(model, step.passes, frozen=step.frozen)
    return per_token / gpu.peak_flops / (seconds * slower)


def _computing_s(model: Architecture, gpu: Gpu, step: Step) -> float:
    """Seconds of a GPU for each token."""
    kind = _ALIKE.get(gpu.name, gpu.name if gpu.name in _MATRICES else "h100")
    passes, of_head = step.layer_passes, step.passes - step.frozen
    head = model.logits_per_token * model.vocab_size * model.d_model
    passed = block_matrix_parameters(model) * model.blocks_per_token / model.blocks
    matrices = 2 * (passes * passed + of_head * head)
    rate = gpu.peak_flops * _MATRICES[kind] / (1 + _HALF_WIDTH / model.d_model)
    rate *= _FP8_GAIN if step.precision == "fp8" else 1.0
    # A window is a mask over whole sequences: it saves no time.
    attention = passes * 4 * model.blocks_per_token * model.query_width * model.seq_len
    # RMSNorm computes in fp32.
    norms, widths = (_GATED, 4) if model.is_gated else (10, 2)
    of_layer = norms * model.d_model + 4 * model.kv_width + widths * model.d_ff
    of_layer += model.n_head * model.seq_len if model.layer.capped else 0  # its scores
    elements = passes * model.blocks_per_token * of_layer
    elements += of_head * model.logits_per_token * model.vocab_size
    moved = (elements * _MOVED_BYTES + passes * step.adapted * _ADAPTED_BYTES) / TRAINING_PASSES
    moved *= _COMPILED if step.compiled else 1.0
    if step.merged_bytes and model.experts is not None:
        # Merged weights have gradients; each is read and written, and its gradient thrice.
        matrices += 2 * model.experts.active_parameters(model.d_model)
        times = 2 * (1 + step.sharing.recompute) + 3
        moved += times * step.merged_bytes / step.tokens
    attention_s = attention / (gpu.peak_flops * _ATTENTION[kind])
    launches_s = model.n_layer * _LAUNCHES_S * passes / TRAINING_PASSES / max(1, step.tokens)
    launches_s *= _COMPILED if step.compiled else 1.0
    return max(launches_s, matrices / rate + attention_s + moved / gpu.memory_bytes_per_s)


def _exchanging_s(model: Architecture, gpu: Gpu, step: Step) -> float:
    """Seconds of a GPU for each token, in which it waits for what processes send each other.

    DDP sends gradients while the backward pass computes others. Bubbles of a pipeline are not
    counted.
    """
    sharing = step.sharing
    if sharing.strategy == "single":
        return 0.0
    is_parted = sharing.strategy in PARTED
    per_parameter = _GATHERED_BYTES if is_parted else _REDUCED_BYTES
    if step.adapted:  # gradients are few
        per_parameter = 4 if is_parted else 0
    tokens = max(1.0, step.tokens / sharing.context)
    rate = _NVLINK.get(gpu.name, _PCIE)
    held = held_matrix_parameters(model)
    weights_s = per_parameter * held / tokens / rate
    if sharing.strategy == "ddp":
        weights_s = max(0.0, weights_s - _BACKWARD * _computing_s(model, gpu, step))
    if sharing.strategy == "zero3_offload":  # counted as if each step were one micro-batch
        weights_s += _OFFLOADED_BYTES * held / sharing.processes / tokens / _PCIE
    # Twice two bytes of each feature, to all others of the group, in each pass.
    others = sharing.tensor - 1
    features = 4 * model.n_layer * model.d_model * others * (step.layer_passes + 1)
    return weights_s + features / rate


def _throughput(speed: float, mfu: float | None, spread: float, source: str) -> Throughput:
    return Throughput(speed, speed * (1 - spread), speed * (1 + spread), mfu, source)

"""Estimates the throughput: from a measurement if there is one, else from a fitted model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainer_runtime.core.environment.gpus import Gpu
from trainmaster.plan.architecture import Architecture, flops_per_token
from trainmaster.plan.decisions.memory import Sharing
from trainmaster.plan.decisions.method import Method
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.facts import Calibration

# Fitted to llm-foundry's published table: within 12 % (90th percentile) on its held-out half, and
# within about 30 % on other frameworks.
_BASE = {"a100": 0.69, "h100": 0.52}
_WIDTH = {"a100": 310.0, "h100": 390.0}
_ATTENTION = {"a100": 0.09, "h100": 0.46}
_LIKE_A100 = ("a100", "a100-40", "a10", "3090", "v100", "t4", "p100")
# Of the same table: full recomputation, and rows of 128 to 512 GPUs against each other.
_RECOMPUTING = 0.86
_PER_DOUBLING = 0.97
_FITTED_PROCESSES = 8
_SPREAD_MODELLED = 0.30
_SPREAD_MEASURED = 0.10


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second with the range it is expected in; `mfu` is None for CPUs."""

    tokens_per_s: float
    low: float
    high: float
    mfu: float | None
    source: str


def throughput(
    model: Architecture | None,
    method: Method,
    target: Target,
    sharing: Sharing,
    calibration: Calibration | None,
) -> Throughput | None:
    """The expected speed of all processes; None without a measurement or a model.

    A measurement is of the same method, number of processes and strategy.
    """
    if model is None:
        return None
    per_token, gpu = flops_per_token(model, method.passes), target.gpu
    measured = (
        calibration.flops_per_s(target.name, target.precision) if calibration is not None else None
    )
    if measured is not None:
        mfu = measured / (gpu.peak_flops * sharing.processes) if gpu is not None else None
        return _throughput(measured / per_token, mfu, _SPREAD_MEASURED, "an earlier run here")
    # The model was fitted to half-precision trainings on GPUs, none of which generated texts.
    if gpu is None or target.precision == "fp32" or method.group > 1:
        return None
    mfu = modelled_mfu(model, gpu) * _efficiency(sharing)
    speed = mfu * gpu.peak_flops * sharing.processes / (per_token * method.sequences)
    return _throughput(speed, mfu, _SPREAD_MODELLED, "a model fitted to published throughput")


def modelled_mfu(model: Architecture, gpu: Gpu) -> float:
    """Share of the peak that one GPU reaches: narrow models and much attention reach less."""
    kind = "a100" if gpu.name in _LIKE_A100 else "h100"
    attention = 12 * model.n_layer * model.d_model * model.seq_len / flops_per_token(model)
    width = 1 / (1 + _WIDTH[kind] / model.d_model)
    return _BASE[kind] * width * (1 - attention * _ATTENTION[kind])


def _efficiency(sharing: Sharing) -> float:
    """The factor for recomputed activations and for communication of over eight processes."""
    doublings = max(0.0, math.log2(sharing.processes / _FITTED_PROCESSES))
    kept = _RECOMPUTING if sharing.recompute else 1.0
    return kept * math.pow(_PER_DOUBLING, doublings)


def _throughput(speed: float, mfu: float | None, spread: float, source: str) -> Throughput:
    return Throughput(speed, speed * (1 - spread), speed * (1 + spread), mfu, source)

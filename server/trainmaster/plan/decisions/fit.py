"""Fits the batch into memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.protocol.figures import gib_text
from trainmaster.errors.errors import PlanError
from trainmaster.plan.architecture import Architecture
from trainmaster.plan.decisions.adapter import (
    adapter_parameters,
    base_bytes,
    merged_bytes,
    uncounted_targets,
)
from trainmaster.plan.decisions.does_not_fit import does_not_fit, fewer_tokens, what_fits
from trainmaster.plan.decisions.hyperparameters import Batch, choose_micro_batch, whole_batch
from trainmaster.plan.decisions.memory import (
    CAPPED_SCORES,
    DROPPED_SCORES,
    EAGER_SCORES,
    PARTED,
    WEIGHT_SCORES,
    Load,
    Memory,
    Sharing,
    kept_bytes,
    memory,
)
from trainmaster.plan.decisions.method import Method
from trainmaster.plan.decisions.model import Network
from trainmaster.plan.decisions.strategy import can_offload, choose_sharing, room_gib
from trainmaster.plan.decisions.target import GPU_SHARE, Target
from trainmaster.plan.decisions.traced_memory import by_trace, is_of, record_trace
from trainmaster.plan.facts import HostFacts
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

# How the warning begins of a step that is over the estimate, and within its range.
LITTLE_ROOM = "Memory is short"
# Larger passes gain nothing any more: CPUs fall out of their caches, GPUs are busy long before.
_MOST_TOKENS = {"cpu": 8192, "cuda": 65536}
# As `train/hf/linear_loss.py` has it.
_LOGITS_AT_ONCE = 4096
# Of a model whose sizes aren't known: a batch that is small for nearly any.
_CAREFUL_MICRO_BATCH = 1
# Up to this length the nanogpt script computes attention on CPUs without fusing it.
LONGEST_WITH_SCORES = {"bf16": 1024, "fp32": 512}


@dataclass(frozen=True, slots=True)
class Fitted:
    """One step as it fits. `memory` is None where sizes aren't known; `trained` parameters have
    gradients, None likewise. `is_traced`: the memory is of a trace of this very step."""

    batch: Batch
    sharing: Sharing
    memory: Memory | None
    trained: int | None
    is_traced: bool = False


def fit(
    spec: TrainingSpec,
    network: Network,
    method: Method,
    target: Target,
    ledger: Ledger,
    trace: MemoryTrace | None = None,
) -> Fitted:
    """The micro-batch and accumulation, how processes share the work, and the memory it takes.

    `trace`: of this training planned without it; then no more at a time are planned than it had.

    Raises:
        PlanError: DOES_NOT_FIT, with the sizes and what would fit; INVALID_VALUE for a batch or a
            strategy that can't be.
    """
    _refuse_quantized_without_cuda(spec, target)
    load = _load(spec, network, method, target)
    _warn_of_uncounted_targets(spec, network, ledger)
    asked = spec.batch.micro_batch if isinstance(spec.batch.micro_batch, int) else 0

    def taken(micro_batch: int, sharing: Sharing, load: Load = load) -> Memory:
        held = replace(load, compiled=load.compiled and sharing.strategy not in PARTED)
        formula = memory(held, micro_batch, target.precision, target.device, sharing)
        if trace is None or not is_of(trace, sharing):
            return formula
        return by_trace(formula, trace, micro_batch, sharing)

    sharing = choose_sharing(
        spec,
        target,
        lambda shared_by: taken(micro_batch=max(method.least, asked), sharing=shared_by),
        ledger,
    )
    if load.model is None:
        careful = max(method.least, _CAREFUL_MICRO_BATCH)
        batch = _batch_of(spec, asked or careful, method, target.processes, ledger)
        return Fitted(batch, sharing, None, load.trained or None)
    learning = replace(load, generated=0)
    fitting = _most_fitting(
        lambda micro_batch: taken(micro_batch, sharing, learning).total_gib <= room_gib(target)
    )
    if trace is not None and is_of(trace, sharing) and not asked:
        fitting = min(fitting, trace.micro_batch)
    least = max(method.least, asked)
    at_least = taken(micro_batch=least, sharing=sharing)
    if fitting < least or at_least.total_gib > room_gib(target):
        generated = 0 if fitting < least else load.generated
        most = fitting if method.least <= fitting < least else 0
        if at_least.range_gib[0] > _all_gib(target):
            offloaded = taken(least, Sharing("zero3_offload", target.processes, recompute=True))
            fix, field = what_fits(
                at_least,
                most,
                target,
                offloaded if can_offload(spec, target) else None,
                fewer_tokens(spec, method, at_least, generated, target),
            )
            raise does_not_fit(at_least, sharing, load.trained, target, fix=fix, field=field)
        _warn_of_little_room(at_least, most, target, ledger)
    traced = trace is not None and is_of(trace, sharing) and fitting == trace.micro_batch
    micro_batch = asked or _micro_batch(
        spec, load, method, fitting, target, ledger, is_traced=traced
    )
    batch = _batch_of(spec, micro_batch, method, target.processes, ledger)
    taken_then = taken(micro_batch=micro_batch, sharing=sharing)
    is_traced = trace is not None and is_of(trace, sharing) and micro_batch == trace.micro_batch
    if trace is not None and is_traced:
        record_trace(taken_then, trace, sharing, ledger)
    return Fitted(batch, sharing, taken_then, load.trained, is_traced)


def _most_fitting(fits: Callable[[int], bool]) -> int:
    """The largest number that fits, up to a million; 0 for none."""
    low, high = 0, 1
    while fits(high) and high < 1 << 20:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def check_host_memory(fitted: Fitted, target: Target, facts: HostFacts) -> None:
    """Check that the hosts hold what is offloaded to them, where each process finds their memory.

    Raises:
        PlanError: DOES_NOT_FIT.
    """
    needed_gib = 0.0 if fitted.memory is None else fitted.memory.offloaded_gib
    held_gib = facts.memory_total_gib * target.nodes
    if needed_gib <= held_gib or facts.slurm is not None or not target.on_host:
        return
    together = f"{target.nodes} hosts have together" if target.nodes > 1 else "host has"
    raise PlanError(
        "DOES_NOT_FIT",
        f"`compute.strategy` is zero3_offload, which holds {gib_text(needed_gib)} of state in host "
        f"memory; the {together} {gib_text(held_gib)}.",
        "Take a host with more memory, or more GPUs with compute.strategy auto.",
        field="compute.strategy",
    )


def _load(spec: TrainingSpec, network: Network, method: Method, target: Target) -> Load:
    model, count = network.architecture, network.parameters or 0
    pairs, logits = method.sequences, method.name != "reward"
    framework = framework_of(spec)
    scores = _score_bytes(spec, model, target)
    processes = target.processes
    generated = _whole_groups(spec, method, processes) // processes if method.group > 1 else 0
    tiled = method.name in framework.tiled_methods and not spec.optimizer.loss_terms
    if spec.adapter is not None and model is not None:
        trained = adapter_parameters(spec.adapter, model, framework)
        frozen = base_bytes(spec.adapter, count, model, framework, target.precision)
        kept = kept_bytes(spec, None)
        quantized = spec.adapter.quantize is not None
        return Load(
            model,
            trained,
            frozen,
            pairs,
            logits,
            scores,
            kept,
            tiled=tiled,
            quantized=quantized,
            quantized_output=quantized and framework.has_own_adapters,
            generated=generated,
            merged_bytes=merged_bytes(spec.adapter, model, framework, target.precision),
        )
    kept = kept_bytes(spec, model)
    return Load(
        model,
        count,
        0.0,
        pairs,
        logits,
        scores,
        kept,
        logits_at_once=None if spec.compute.loss == "whole" else _LOGITS_AT_ONCE,
        tiled=tiled,
        # `auto` is decided later, and counted as if it were false.
        compiled=spec.compute.compile is True and target.device == "cuda",
        reference=count if method.has_reference else 0,
        generated=generated,
    )


def _score_bytes(spec: TrainingSpec, model: Architecture | None, target: Target) -> int:
    attention = spec.model.attention
    if model is not None and model.decoder is not None:
        return DROPPED_SCORES
    if model is not None and model.layer.capped and attention in ("auto", "eager"):
        return CAPPED_SCORES
    if attention == "eager":
        return EAGER_SCORES
    on_cpu = target.device == "cpu" and framework_of(spec).keeps_attention_scores
    is_masked = spec.data.document_masks or spec.model.window is not None
    is_short = spec.data.seq_len <= LONGEST_WITH_SCORES.get(target.precision, 0)
    return WEIGHT_SCORES if on_cpu and not is_masked and is_short else 0


def _warn_of_uncounted_targets(spec: TrainingSpec, network: Network, ledger: Ledger) -> None:
    if spec.adapter is None or network.architecture is None:
        return
    names = uncounted_targets(spec.adapter, network.architecture, framework_of(spec))
    if names:
        ledger.warn(
            f"adapter.targets names {', '.join(names)}, which is not counted here: the adapter has "
            "more parameters and takes more memory than planned."
        )


def _refuse_quantized_without_cuda(spec: TrainingSpec, target: Target) -> None:
    if spec.adapter is not None and spec.adapter.quantize is not None and target.device != "cuda":
        raise PlanError(
            "INVALID_VALUE",
            f"`adapter.quantize` is {spec.adapter.quantize}, which computes on CUDA alone, but the "
            "training computes on the CPU.",
            "Set adapter.quantize to null, or take a host with a GPU.",
            field="adapter.quantize",
        )


def _micro_batch(
    spec: TrainingSpec,
    load: Load,
    method: Method,
    fitting: int,
    target: Target,
    ledger: Ledger,
    *,
    is_traced: bool,
) -> int:
    """`fitting`: how many fit; `is_traced`: so many were traced, and more may fit."""
    seq_len = spec.data.seq_len * load.sequences
    quick = max(1, _MOST_TOKENS[target.device] // seq_len)
    in_a_step = max(1, spec.batch.tokens // spec.data.seq_len // target.processes)
    if method.group > 1:
        # Whole groups over all processes: a divisor of what one process has of a group's multiple.
        in_a_step = _whole_groups(spec, method, target.processes) // target.processes
        most = min(fitting, quick, in_a_step)
        micro_batch = max(n for n in range(1, most + 1) if in_a_step % n == 0)
    else:
        micro_batch = max(method.least, choose_micro_batch(in_a_step, min(fitting, quick)))
    reason = f"{_fit_in(fitting, load, is_traced=is_traced)}; more than {quick:,} gain nothing."
    if fitting < method.least:
        reason = "The least, for which memory is short."
    ledger.decide("batch.micro_batch", micro_batch, reason)
    return micro_batch


def _fit_in(fitting: int, load: Load, *, is_traced: bool) -> str:
    what = "sequence" if load.sequences == 1 else "pair"
    if is_traced:
        return f"The trace was of {fitting:,} {what}{'s' * (fitting > 1)}, which fit into memory"
    fit_in = f"One {what} fits" if fitting == 1 else f"Up to {fitting:,} {what}s fit"
    return f"{fit_in} into memory"


def _whole_groups(spec: TrainingSpec, method: Method, processes: int) -> int:
    """Examples of a step that are whole groups and whole shares of each process.

    Raises:
        PlanError: INVALID_VALUE, the step has no room for one.
    """
    unit = math.lcm(method.group, processes)
    sequences = spec.batch.tokens // spec.data.seq_len
    if sequences < unit:
        raise _too_few_for_groups(spec, method, unit)
    return sequences - sequences % unit


def _batch_of(
    spec: TrainingSpec, micro_batch: int, method: Method, processes: int, ledger: Ledger
) -> Batch:
    seq_len = spec.data.seq_len
    tokens = spec.batch.tokens
    if method.group > 1:
        tokens = _whole_groups(spec, method, processes) * seq_len
    batch = whole_batch(tokens, seq_len, micro_batch, processes)
    if batch.sequences % method.group:
        raise _too_few_for_groups(spec, method, math.lcm(method.group, micro_batch * processes))
    product = f"micro_batch {micro_batch} x seq_len {seq_len} x {batch.accumulation}"
    if processes > 1:
        product = (
            f"micro_batch {micro_batch} x accumulation {batch.accumulation} x {processes} "
            f"processes x seq_len {seq_len}"
        )
    ledger.decide("batch.accumulation", batch.accumulation, f"{product} = {batch.tokens:,} tokens.")
    if batch.tokens != spec.batch.tokens:
        way = "down" if batch.tokens < spec.batch.tokens else "up"
        reason = f"{spec.batch.tokens:,} rounded {way} to {product}."
        ledger.decide("batch.tokens", batch.tokens, reason)
    return batch


def _too_few_for_groups(spec: TrainingSpec, method: Method, unit: int) -> PlanError:
    auto = "" if spec.batch.micro_batch == "auto" else ", or batch.micro_batch to auto"
    return PlanError(
        "INVALID_VALUE",
        f"`batch.tokens` {spec.batch.tokens} gives steps that are not whole groups of "
        f"{method.group} completions.",
        f"Set batch.tokens to a multiple of {unit * spec.data.seq_len}{auto}.",
        field="batch.tokens",
    )


def _all_gib(target: Target) -> float:
    """With what is otherwise kept back for errors of the estimate."""
    return target.memory_gib / GPU_SHARE if target.device == "cuda" else room_gib(target)


def _warn_of_little_room(taken: Memory, fitting: int, target: Target, ledger: Ledger) -> None:
    low, high = (gib_text(bound) for bound in taken.range_gib)
    instead = f"with batch.micro_batch {fitting} it fits" if fitting else "more room is safer"
    ledger.warn(
        f"{LITTLE_ROOM}: {low} to {high} in each process, of {gib_text(target.memory_gib)} that "
        f"can be used. {instead[0].upper()}{instead[1:]}; compute.activation_checkpointing=true "
        "and a strategy that shares more of the state take less."
    )

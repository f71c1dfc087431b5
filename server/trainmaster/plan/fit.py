"""Fits the batch into memory and the checkpoints onto the disk."""

from __future__ import annotations

from trainer_runtime.core.gpus import GPUS
from trainmaster.errors import PlanError
from trainmaster.plan.checkpoint_interval import kept_checkpoints
from trainmaster.plan.facts import CorpusFacts, HostFacts
from trainmaster.plan.hyperparameters import Batch, choose_micro_batch, whole_batch
from trainmaster.plan.memory import (
    CHECKPOINT_BYTES_PER_PARAMETER,
    EXPORT_BYTES_PER_PARAMETER,
    GIB,
    SHARD_BYTES_PER_TOKEN,
    Memory,
    memory,
)
from trainmaster.plan.model import Network
from trainmaster.plan.result import Ledger
from trainmaster.plan.target import Target
from trainmaster.spec import TrainingSpec

# Larger passes gain nothing any more: CPUs fall out of their caches, GPUs are busy long before.
_MOST_TOKENS = {"cpu": 8192, "cuda": 65536}
_LOGS_GIB = 0.05


def choose_batch(
    spec: TrainingSpec, network: Network, target: Target, ledger: Ledger
) -> tuple[Batch, Memory | None]:
    """The micro-batch and accumulation, and the peak memory that they take, where it is known.

    Raises:
        PlanError: DOES_NOT_FIT, with the sizes and what would fit.
    """
    model, parameters = network.architecture, network.parameters
    if model is None or parameters is None:
        micro_batch = 1 if spec.batch.micro_batch == "auto" else spec.batch.micro_batch
        return _batch_of(spec, micro_batch, target.processes, ledger), None

    def taken(micro_batch: int) -> Memory:
        return memory(model, parameters, micro_batch, target.precision, target.device)

    per_sequence_gib = taken(1).total_gib - taken(0).total_gib
    fitting = int((target.memory_gib - taken(0).total_gib) / per_sequence_gib)
    asked = spec.batch.micro_batch
    micro_batch = asked if isinstance(asked, int) else 0
    if fitting < max(1, micro_batch):
        raise _does_not_fit(taken(max(1, micro_batch)), parameters, fitting, target)
    if not micro_batch:
        quick = max(1, _MOST_TOKENS[target.device] // model.seq_len)
        sequences = max(1, spec.batch.tokens // model.seq_len // target.processes)
        micro_batch = choose_micro_batch(sequences, min(fitting, quick))
        reason = f"Up to {fitting:,} sequences fit into memory; more than {quick:,} gain nothing."
        ledger.decide("batch.micro_batch", micro_batch, reason)
    return _batch_of(spec, micro_batch, target.processes, ledger), taken(micro_batch)


def _batch_of(spec: TrainingSpec, micro_batch: int, processes: int, ledger: Ledger) -> Batch:
    seq_len = spec.data.seq_len
    batch = whole_batch(spec.batch.tokens, seq_len, micro_batch, processes)
    product = f"micro_batch {micro_batch} x seq_len {seq_len} x {batch.accumulation}"
    if processes > 1:
        product = f"{product} x {processes} processes"
    ledger.decide("batch.accumulation", batch.accumulation, f"{product} = {batch.tokens:,} tokens.")
    if batch.tokens != spec.batch.tokens:
        reason = f"{spec.batch.tokens:,} rounded down to {product}."
        ledger.decide("batch.tokens", batch.tokens, reason)
    return batch


def disk_gib(spec: TrainingSpec, parameters: int, steps: int, corpus: CorpusFacts) -> float:
    """What the run will have on disk at most: checkpoints, the exported model, logs, and its data
    in the cache."""
    policy = spec.checkpoint
    kept = kept_checkpoints(steps, policy.keep_latest, policy.keep_best, policy.keep_every_steps)
    size_bytes = parameters * (kept * CHECKPOINT_BYTES_PER_PARAMETER + EXPORT_BYTES_PER_PARAMETER)
    return size_bytes / GIB + _LOGS_GIB + data_gib(spec, corpus)


def data_gib(spec: TrainingSpec, corpus: CorpusFacts) -> float:
    """What the data adds to the host's cache: shards, and what is sent there to cut them from."""
    if corpus.cached:
        return 0.0
    # Other tokenizers' numbers may take twice the room.
    size_bytes = corpus.tokens * SHARD_BYTES_PER_TOKEN * (2 if corpus.estimated else 1)
    if spec.data.prepare != "here":
        size_bytes += sum(source.size_bytes for source in corpus.sent)
    return size_bytes / GIB


def check_disk(
    spec: TrainingSpec,
    needed_gib: float,
    parameters: int,
    facts: HostFacts,
    *,
    cache_gib: float = 0.0,
) -> None:
    """Nothing, if the disk has room for what retention will keep; `cache_gib` of what is needed
    lies in the cache, which may have a disk of its own.

    Raises:
        PlanError: DISK_TOO_SMALL.
    """
    if facts.cache_free_gib is not None:
        needed_gib -= cache_gib
        if cache_gib > facts.cache_free_gib:
            raise _cache_too_small(cache_gib, facts.cache_free_gib, facts.cache_folder)
    if needed_gib <= facts.disk_free_gib:
        return
    policy = spec.checkpoint
    one_gib = parameters * CHECKPOINT_BYTES_PER_PARAMETER / GIB
    every = policy.keep_every_steps
    periodic = f" and each {every} steps" if every is not None else ""
    field = "checkpoint.keep_every_steps" if every is not None else "checkpoint.keep_latest"
    raise PlanError(
        "DISK_TOO_SMALL",
        f"The run will need {needed_gib:.2f} GiB on {facts.root}, which has "
        f"{facts.disk_free_gib:.2f} GiB free: checkpoints of {one_gib:.2f} GiB each, of which the "
        f"latest {policy.keep_latest}, the best {policy.keep_best}{periodic} are kept.",
        "Keep fewer checkpoints (checkpoint.keep_latest, keep_best, keep_every_steps), free some "
        "disk, or set the host's root to a larger disk.",
        field=field,
    )


def _cache_too_small(needed_gib: float, free_gib: float, folder: str) -> PlanError:
    return PlanError(
        "DISK_TOO_SMALL",
        f"Data and environment will need {needed_gib:.2f} GiB in {folder}, which has "
        f"{free_gib:.2f} GiB free.",
        "Free some disk (`trainmaster hosts gc` removes what no run uses), or set the host's cache "
        "to a larger one.",
        field="host",
    )


def _does_not_fit(taken: Memory, parameters: int, fitting: int, target: Target) -> PlanError:
    sizes = (
        f"state {taken.state_gib:.2f}, activations {taken.activations_gib:.2f}, "
        f"logits {taken.logits_gib:.2f}"
    )
    if fitting >= 1:
        fix, field = f"Set batch.micro_batch to at most {fitting}, or to auto.", "batch.micro_batch"
    else:
        larger = [gpu for gpu in GPUS if gpu.memory_gib * 0.95 >= taken.total_gib]
        gpu = min(larger, key=lambda gpu: gpu.memory_gib, default=None)
        fitting_gpu = f", or a GPU such as {gpu.name}" if gpu is not None else ""
        fix = f"Take a smaller model or a shorter data.seq_len{fitting_gpu}."
        field = "model"
    where = "of host memory" if target.device == "cpu" else f"on the {target.name}"
    return PlanError(
        "DOES_NOT_FIT",
        f"Training {parameters:,} parameters takes about {taken.total_gib:.2f} GiB ({sizes}), but "
        f"only {target.memory_gib:.2f} GiB {where} can be used.",
        fix,
        field=field,
    )

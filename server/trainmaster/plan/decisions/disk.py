"""Checks that checkpoints and data fit on the disk."""

from __future__ import annotations

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import gib_text
from trainmaster.errors.errors import PlanError
from trainmaster.plan.corpus_facts import CorpusFacts
from trainmaster.plan.decisions.checkpoint_interval import kept_checkpoints
from trainmaster.plan.decisions.memory import (
    EXPORT_BYTES_PER_PARAMETER,
    GIB,
    SHARD_BYTES_PER_TOKEN,
)
from trainmaster.plan.facts import HostFacts
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.spec import TrainingSpec

_LOGS_GIB = 0.05


def disk_gib(
    spec: TrainingSpec, trained: int, per_checkpoint: float, steps: int, corpus: CorpusFacts
) -> float:
    """The maximum disk use: checkpoints of the trained parameters, of so many bytes for each, the
    exported model, logs, and data in the cache."""
    policy = spec.checkpoint
    kept = kept_checkpoints(steps, policy.keep_latest, policy.keep_best, policy.keep_every_steps)
    kept = min(kept + len(spec.phases or ()), steps + 1)  # at each border
    exports = framework_of(spec).exports
    per_parameter = kept * per_checkpoint + exports * EXPORT_BYTES_PER_PARAMETER
    size_bytes = trained * per_parameter
    return size_bytes / GIB + _LOGS_GIB + data_gib(spec, corpus)


def data_gib(spec: TrainingSpec, corpus: CorpusFacts) -> float:
    """The data that is added to the host's cache: shards, and the uploaded files."""
    if corpus.cached:
        return 0.0
    # Tokens of other tokenizers may need twice the bytes.
    tokens = sum(source.tokens for source in corpus.sources)
    size_bytes = tokens * SHARD_BYTES_PER_TOKEN * (2 if corpus.estimated else 1)
    if spec.data.prepare != "here":
        size_bytes += sum(source.size_bytes for source in corpus.sent)
    return size_bytes / GIB


def check_disk(
    spec: TrainingSpec,
    needed_gib: float,
    checkpoint_gib: float,
    facts: HostFacts,
    *,
    cache_gib: float = 0.0,
) -> None:
    """Check the disk's free space; `checkpoint_gib`: of each checkpoint; `cache_gib` of the needed
    space is in the cache, which may be on another disk.

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
    every = policy.keep_every_steps
    periodic = f" and each {every} steps" if every is not None else ""
    field = "checkpoint.keep_every_steps" if every is not None else "checkpoint.keep_latest"
    raise PlanError(
        "DISK_TOO_SMALL",
        f"The run will need {gib_text(needed_gib)} on {facts.root}, which has "
        f"{gib_text(facts.disk_free_gib)} free: checkpoints of {gib_text(checkpoint_gib)} each, of "
        "which the "
        f"latest {policy.keep_latest}, the best {policy.keep_best}{periodic} are kept.",
        "Keep fewer checkpoints (checkpoint.keep_latest, keep_best, keep_every_steps), free "
        "disk space, or set the host's root to a larger disk.",
        field=field,
    )


def _cache_too_small(needed_gib: float, free_gib: float, folder: str) -> PlanError:
    return PlanError(
        "DISK_TOO_SMALL",
        f"Data and environment will need {gib_text(needed_gib)} in {folder}, which has "
        f"{gib_text(free_gib)} free.",
        f"Free disk space ({command('hosts gc', 'HOST')} removes unused files), or move the "
        "host's cache to a larger disk.",
        field="host",
    )

"""Makes a plan: every `auto` of a spec decided, with the reason, and what the training takes."""

from __future__ import annotations

from trainer_runtime.core.duration import format_duration, parse_duration
from trainmaster.errors import HostError, PlanError
from trainmaster.plan.architecture import Architecture, flops_per_token, parameters
from trainmaster.plan.checkpoint_interval import ceiling_s
from trainmaster.plan.config import Decided, resolved_config
from trainmaster.plan.corpus_checks import check_corpus, warn_of_passes
from trainmaster.plan.estimate import HOUR_S, estimates, hours_of
from trainmaster.plan.facts import Calibration, CorpusFacts, HostFacts
from trainmaster.plan.fit import check_disk, choose_batch, disk_gib
from trainmaster.plan.hardware import recommend_gpu, usable_cores
from trainmaster.plan.hyperparameters import Batch, learning_rate, warmup_steps
from trainmaster.plan.model import choose_architecture
from trainmaster.plan.result import GpuAdvice, Ledger, Plan
from trainmaster.plan.target import Target, choose_target
from trainmaster.plan.throughput import throughput
from trainmaster.spec import TrainingSpec, refuse_what_is_not_built

# What `requirements.txt` pins where the host has no PyTorch yet.
TORCH_VERSION = "2.13.0"
_SHORTEST_LIMIT_S = 24 * HOUR_S
_LIMIT_FACTOR = 1.5
# A model compiles for about a minute; shorter runs would not earn that back.
_STEPS_WORTH_COMPILING = 200


def plan(
    spec: TrainingSpec,
    facts: HostFacts,
    corpus: CorpusFacts,
    calibration: Calibration | None = None,
) -> Plan:
    """The plan of a spec for a host; pure, and the same for the same input.

    Raises:
        SpecError: NOT_YET_SUPPORTED.
        PlanError: this data or this machine can't carry the training.
        HostError: ROOT_NOT_WRITABLE.
    """
    refuse_what_is_not_built(spec)
    _refuse_unwritable_root(facts)
    check_corpus(spec, corpus)
    ledger = Ledger()
    if spec.method == "auto":
        ledger.decide("method", "pretrain", "What nanogpt does.")
    model = choose_architecture(spec, ledger)
    count = parameters(model)
    target = choose_target(spec, facts, ledger)
    batch, memory = choose_batch(spec, model, count, target, ledger)
    steps = _steps(spec, batch, ledger)
    speed = throughput(model, target.precision, target.name, target.gpu, calibration)
    total_tokens = steps * batch.tokens
    hours = hours_of(total_tokens, speed)
    decided = Decided(
        model=model,
        parameters=count,
        target=target,
        batch=batch,
        lr=_learning_rate(spec, count, ledger),
        warmup_steps=_warmup(spec, steps, ledger),
        steps=steps,
        checkpoint_every=_checkpoint_every(spec, hours, ledger),
        max_runtime_s=_max_runtime_s(spec, hours, ledger),
        threads=_threads(spec, facts, ledger),
        compile=_compile(spec, target, facts, steps, ledger),
        env=_environment_variables(spec, target, facts, ledger),
    )
    needed_gib = disk_gib(spec, count, steps, corpus)
    if target.on_host:
        check_disk(spec, needed_gib, count, facts)
    warn_of_passes(steps, batch.tokens, corpus, ledger)
    sizes = {
        "parameters": count,
        "memory_gib": round(memory.total_gib, 2),
        "disk_gib": round(needed_gib, 2),
    }
    return Plan(
        config=resolved_config(spec, decided, facts, corpus),
        decisions=tuple(ledger.decisions),
        estimates=estimates(sizes, total_tokens, speed, facts),
        gpu=_gpu_advice(model, count, total_tokens, target),
        warnings=tuple(ledger.warnings),
        launchable=target.on_host,
        requirements=(_torch_requirement(facts),),
    )


def _refuse_unwritable_root(facts: HostFacts) -> None:
    if not facts.root_writable:
        raise HostError(
            "ROOT_NOT_WRITABLE",
            f"The folder for runs on {facts.hostname}, {facts.root}, can't be written.",
            "Make it writable, or set the host's root to a folder that is.",
            field="host",
        )


def _steps(spec: TrainingSpec, batch: Batch, ledger: Ledger) -> int:
    if isinstance(spec.tokens, int):
        steps = max(1, spec.tokens // batch.tokens)
        ledger.decide("steps", steps, f"{spec.tokens:,} tokens at {batch.tokens:,} a step.")
        return steps
    # The spec's own checks saw to it that one of the two is given.
    return int(spec.steps or 0)


def _learning_rate(spec: TrainingSpec, count: int, ledger: Ledger) -> float:
    if isinstance(spec.optimizer.lr, float | int):
        return float(spec.optimizer.lr)
    rate, source = learning_rate(count)
    ledger.decide("optimizer.lr", rate, f"By the model's {count:,} parameters.", source)
    return rate


def _warmup(spec: TrainingSpec, steps: int, ledger: Ledger) -> int:
    given = spec.schedule.warmup_steps
    if not isinstance(given, int):
        warmup = warmup_steps(steps)
        reason = f"2 % of {steps:,} steps, at most 2000; short runs take up to a tenth."
        ledger.decide("schedule.warmup_steps", warmup, reason)
        return warmup
    if given > steps:
        raise PlanError(
            "INVALID_VALUE",
            f"`schedule.warmup_steps` is {given}, longer than the whole run of {steps} steps.",
            f"Set schedule.warmup_steps to at most {steps}, or to auto.",
            field="schedule.warmup_steps",
        )
    return given


def _checkpoint_every(spec: TrainingSpec, hours: float | None, ledger: Ledger) -> int | str:
    every = spec.checkpoint.every
    if isinstance(every, int):
        return every
    if every != "auto":
        # One whole number and unit, whatever was written: `1h30m` becomes `90m`.
        return format_duration(parse_duration(every))
    value = format_duration(ceiling_s(hours))
    length = "a length not known yet" if hours is None else f"about {hours:.1f} h"
    reason = f"For a job of {length}; decided again on the box after 20 measured steps."
    ledger.decide("checkpoint.every", value, reason)
    return value


def _max_runtime_s(spec: TrainingSpec, hours: float | None, ledger: Ledger) -> float:
    if spec.limits.max_runtime != "auto":
        limit_s = parse_duration(spec.limits.max_runtime)
        if hours is not None and hours * HOUR_S > limit_s:
            ledger.warn(
                f"About {hours:.1f} h are needed, but limits.max_runtime ends the run after "
                f"{spec.limits.max_runtime}."
            )
        return limit_s
    limit_s = max(_SHORTEST_LIMIT_S, _LIMIT_FACTOR * HOUR_S * (hours or 0.0))
    reason = "1.5 times the estimate, at least 24 h; over all attempts."
    ledger.decide("limits.max_runtime", format_duration(limit_s), reason)
    return float(round(limit_s))


def _threads(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> int:
    if isinstance(spec.compute.threads, int):
        return spec.compute.threads
    threads = usable_cores(facts)
    reason = f"The host grants {facts.cores:g} cores; more threads than that collapse."
    ledger.decide("compute.threads", threads, reason)
    return threads


def _compile(
    spec: TrainingSpec, target: Target, facts: HostFacts, steps: int, ledger: Ledger
) -> bool:
    if isinstance(spec.compute.compile, bool):
        return spec.compute.compile
    if target.device == "cpu":
        chosen, reason = False, "On CPUs torch.compile was measured to gain nothing."
    elif facts.c_compiler is False and target.on_host:
        chosen, reason = False, "The host has no C compiler, which torch.compile needs."
    elif steps < _STEPS_WORTH_COMPILING:
        chosen, reason = False, f"{steps} steps would not earn the minute of compiling back."
    else:
        chosen, reason = True, "Compiled kernels are faster on GPUs."
    ledger.decide("compute.compile", chosen, reason)
    return chosen


def _environment_variables(
    spec: TrainingSpec, target: Target, facts: HostFacts, ledger: Ledger
) -> dict[str, str]:
    name = "CUDA_VISIBLE_DEVICES"
    variables = dict(spec.env)
    if target.index is not None and len(facts.gpus) > 1 and name not in variables:
        variables[name] = str(target.index)
        ledger.decide(f"env.{name}", variables[name], "The GPU with the most free memory.")
    return variables


def _gpu_advice(model: Architecture, count: int, total_tokens: int, target: Target) -> GpuAdvice:
    recommended, reason = recommend_gpu(count, flops_per_token(model) * total_tokens)
    return GpuAdvice(recommended=recommended, reason=reason, planned=target.name)


def _torch_requirement(facts: HostFacts) -> str:
    # Without the build's own suffix (`+cpu`), which no package index knows under that name.
    version = facts.torch.version.split("+")[0] if facts.torch is not None else TORCH_VERSION
    return f"torch=={version}"

"""Makes a plan: every `auto` of a spec decided, with the reason, and what the training takes."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.duration import format_duration, parse_duration
from trainmaster.errors import HostError, PlanError
from trainmaster.plan.architecture import flops_per_token
from trainmaster.plan.checkpoint_interval import ceiling_s
from trainmaster.plan.config import Decided, resolved_config
from trainmaster.plan.corpus_checks import check_corpus, warn_of_passes
from trainmaster.plan.environment import (
    choose_environment,
    environment_gib,
    facts_to_train_by,
    torch_requirement,
    warn_of_cuda_without_gpu,
)
from trainmaster.plan.estimate import HOUR_S, estimates, hours_of
from trainmaster.plan.facts import Calibration, CorpusFacts, HostFacts, ModelFacts, TokenizerFacts
from trainmaster.plan.fit import check_disk, choose_batch, data_gib, disk_gib
from trainmaster.plan.hardware import recommend_gpu, usable_cores
from trainmaster.plan.hyperparameters import Batch, learning_rate, warmup_steps
from trainmaster.plan.input_checks import check_inputs
from trainmaster.plan.memory import GIB, Memory
from trainmaster.plan.method import Method, choose_method
from trainmaster.plan.model import BYTE_VOCABULARY, Network, choose_network
from trainmaster.plan.result import GpuAdvice, Ledger, Plan
from trainmaster.plan.target import Target, choose_target
from trainmaster.plan.throughput import Throughput, throughput
from trainmaster.spec import TrainingSpec, refuse_what_is_not_built

_FAR_TOO_HIGH = 10
_SHORTEST_LIMIT_S = 24 * HOUR_S
_LIMIT_FACTOR = 1.5
# A model compiles for about a minute; shorter runs would not earn that back.
_STEPS_WORTH_COMPILING = 200


def plan(
    spec: TrainingSpec,
    facts: HostFacts,
    corpus: CorpusFacts,
    calibration: Calibration | None = None,
    model: ModelFacts | None = None,
    tokenizer: TokenizerFacts | None = None,
) -> Plan:
    """The plan of a spec for a host; pure, and the same for the same input.

    `model`: what is known of the existing weights that the spec names; `tokenizer`: of the one that
    reads the texts, None for bytes.

    Raises:
        SpecError: NOT_YET_SUPPORTED.
        PlanError: this data or this machine can't carry the training.
        HostError: ROOT_NOT_WRITABLE.
    """
    refuse_what_is_not_built(spec)
    _refuse_unwritable_root(facts)
    ledger = Ledger()
    method = choose_method(spec, ledger)
    check_inputs(spec, model, tokenizer)
    check_corpus(spec, corpus, method.form)
    facts = facts_to_train_by(spec, facts, ledger)
    tokens = BYTE_VOCABULARY if tokenizer is None else tokenizer.vocab_size
    network = choose_network(spec, model, tokens, ledger)
    basis = _basis(spec, facts, method, network, corpus, calibration, ledger)
    decided = _decide_the_rest(spec, facts, basis, ledger)
    built_gib, most_built_gib = environment_gib(spec, facts, basis.target)
    inputs_gib = sum(one.size_bytes for one in (model, tokenizer) if one is not None) / GIB
    kept_gib = disk_gib(spec, network.parameters or 0, basis.steps, corpus) + inputs_gib
    if basis.target.on_host:
        cache_gib = data_gib(spec, corpus) + inputs_gib + built_gib
        check_disk(spec, kept_gib + built_gib, network.parameters or 0, facts, cache_gib=cache_gib)
    warn_of_cuda_without_gpu(spec, facts, ledger)
    warn_of_passes(basis.steps, basis.batch.tokens, corpus, ledger)
    sizes = {
        "parameters": network.parameters,
        "memory_gib": None if basis.memory is None else round(basis.memory.total_gib, 2),
        "disk_gib": round(kept_gib + most_built_gib, 2) if network.parameters else None,
    }
    return Plan(
        config=resolved_config(spec, decided, facts, corpus, model, tokenizer),
        decisions=tuple(ledger.decisions),
        estimates=estimates(sizes, basis.total_tokens, basis.speed, facts),
        gpu=_gpu_advice(basis),
        warnings=tuple(ledger.warnings),
        launchable=basis.target.on_host,
        requirements=(torch_requirement(facts, decided.environment),),
    )


@dataclass(frozen=True, slots=True)
class _Basis:
    """What the other decisions rest on; `memory` and `speed` are None where nothing tells them."""

    method: Method
    network: Network
    target: Target
    batch: Batch
    memory: Memory | None
    steps: int
    speed: Throughput | None

    @property
    def total_tokens(self) -> int:
        return self.steps * self.batch.tokens

    @property
    def hours(self) -> float | None:
        return hours_of(self.total_tokens, self.speed)


def _basis(
    spec: TrainingSpec,
    facts: HostFacts,
    method: Method,
    network: Network,
    corpus: CorpusFacts,
    calibration: Calibration | None,
    ledger: Ledger,
) -> _Basis:
    if spec.data.prepare == "auto" and method.form == "shards":
        ledger.decide("data.prepare", "box", "Shards are cut where they are read, and cached.")
    target = choose_target(spec, facts, ledger)
    batch, memory = choose_batch(spec, network, target, ledger)
    steps = _steps(spec, batch, corpus, ledger)
    model = network.architecture
    speed = (
        throughput(model, target.precision, target.name, target.gpu, calibration)
        if model is not None
        else None
    )
    return _Basis(method, network, target, batch, memory, steps, speed)


def _decide_the_rest(
    spec: TrainingSpec, facts: HostFacts, basis: _Basis, ledger: Ledger
) -> Decided:
    return Decided(
        method=basis.method,
        network=basis.network,
        target=basis.target,
        batch=basis.batch,
        lr=_learning_rate(spec, basis.network.parameters or 0, ledger),
        warmup_steps=_warmup(spec, basis.steps, ledger),
        steps=basis.steps,
        checkpoint_every=_checkpoint_every(spec, basis.hours, ledger),
        max_runtime_s=_max_runtime_s(spec, basis.hours, ledger),
        strategy=_strategy(spec, basis.target, ledger),
        activation_checkpointing=spec.compute.activation_checkpointing is True,
        threads=_threads(spec, facts, basis.target.processes, ledger),
        compile=_compile(spec, facts, basis, ledger),
        environment=choose_environment(spec, facts, basis.target, ledger),
        env=_environment_variables(spec, basis.target, facts, ledger),
    )


def _refuse_unwritable_root(facts: HostFacts) -> None:
    folders = [("runs", facts.root, facts.root_writable)]
    if facts.cache is not None:
        folders.append(("what runs share", facts.cache, facts.cache_writable))
    for use, folder, writable in folders:
        if not writable:
            raise HostError(
                "ROOT_NOT_WRITABLE",
                f"The folder for {use} on {facts.hostname}, {folder}, can't be written.",
                "Make it writable, or set the host's root or cache to a folder that is.",
                field="host",
            )


def _steps(spec: TrainingSpec, batch: Batch, corpus: CorpusFacts, ledger: Ledger) -> int:
    if spec.steps is None and "epochs" in spec.method_args:
        return _steps_of_epochs(spec, batch, corpus, ledger)
    if isinstance(spec.tokens, int):
        steps = max(1, spec.tokens // batch.tokens)
        ledger.decide("steps", steps, f"{spec.tokens:,} tokens at {batch.tokens:,} a step.")
        return steps
    # The spec's own checks saw to it that one of the two is given.
    return int(spec.steps or 0)


def _steps_of_epochs(spec: TrainingSpec, batch: Batch, corpus: CorpusFacts, ledger: Ledger) -> int:
    per_step = batch.sequences
    if not corpus.examples:
        raise PlanError(
            "INVALID_VALUE",
            "`method_args.epochs` is given, but how many examples there are is not known.",
            "Give steps instead.",
            field="method_args.epochs",
        )
    epochs = float(spec.method_args["epochs"])
    steps = max(1, round(epochs * corpus.examples / per_step))
    reason = f"{epochs:g} times {corpus.examples:,} examples, {per_step:,} a step."
    ledger.decide("steps", steps, reason)
    return steps


def _learning_rate(spec: TrainingSpec, count: int, ledger: Ledger) -> float:
    rate, source = learning_rate(count)
    given = spec.optimizer.lr
    if isinstance(given, float | int):
        if given > _FAR_TOO_HIGH * rate:
            ledger.warn(
                f"optimizer.lr is {given:g}; for a model of {count:,} parameters auto takes "
                f"{rate:g}. Over {_FAR_TOO_HIGH} times that, training is likely to diverge."
            )
        return float(given)
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


def _strategy(spec: TrainingSpec, target: Target, ledger: Ledger) -> str:
    if spec.compute.strategy != "auto":
        return spec.compute.strategy
    if target.processes > 1:
        ledger.decide("compute.strategy", "ddp", "Each process holds the whole model.")
        return "ddp"
    ledger.decide("compute.strategy", "single", "One process on one device.")
    return "single"


def _threads(spec: TrainingSpec, facts: HostFacts, processes: int, ledger: Ledger) -> int:
    if isinstance(spec.compute.threads, int):
        return spec.compute.threads
    threads = max(1, usable_cores(facts) // processes)
    among = f", for {processes} processes" if processes > 1 else ""
    reason = f"The host grants {facts.cores:g} cores{among}; more threads than that collapse."
    ledger.decide("compute.threads", threads, reason)
    return threads


def _compile(spec: TrainingSpec, facts: HostFacts, basis: _Basis, ledger: Ledger) -> bool:
    if isinstance(spec.compute.compile, bool):
        return spec.compute.compile
    if basis.target.device == "cpu":
        chosen, reason = False, "On CPUs torch.compile was measured to gain nothing."
    elif facts.c_compiler is False and basis.target.on_host:
        chosen, reason = False, "The host has no C compiler, which torch.compile needs."
    elif basis.steps < _STEPS_WORTH_COMPILING:
        chosen, reason = False, f"{basis.steps} steps would not earn the minute of compiling back."
    else:
        chosen, reason = True, "Compiled kernels are faster on GPUs."
    ledger.decide("compute.compile", chosen, reason)
    return chosen


def _environment_variables(
    spec: TrainingSpec, target: Target, facts: HostFacts, ledger: Ledger
) -> dict[str, str]:
    name = "CUDA_VISIBLE_DEVICES"
    variables = dict(spec.env)
    if target.indexes and len(facts.gpus) > len(target.indexes) and name not in variables:
        variables[name] = ",".join(str(index) for index in target.indexes)
        which = "GPU" if len(target.indexes) == 1 else "GPUs"
        ledger.decide(f"env.{name}", variables[name], f"The {which} with the most free memory.")
    return variables


def _gpu_advice(basis: _Basis) -> GpuAdvice:
    model, count = basis.network.architecture, basis.network.parameters
    if model is None or count is None:
        reason = "The model's sizes are not known."
        return GpuAdvice(recommended="unknown", reason=reason, planned=basis.target.name)
    total_flops = flops_per_token(model) * basis.total_tokens
    recommended, reason = recommend_gpu(count, total_flops)
    return GpuAdvice(recommended=recommended, reason=reason, planned=basis.target.name)

"""Makes a plan: decides every `auto` of a spec with a reason, and estimates the training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.config.objectives import CAUSAL
from trainer_runtime.core.protocol.figures import gib_text
from trainmaster.errors.errors import HostError
from trainmaster.plan.architecture import flops_per_token
from trainmaster.plan.config import Decided, resolved_config
from trainmaster.plan.corpus_facts import CorpusFacts
from trainmaster.plan.decisions.adapter import adapted_features, merged_bytes
from trainmaster.plan.decisions.attention import choose_attention
from trainmaster.plan.decisions.best_metric import choose_best_metric
from trainmaster.plan.decisions.corpus_checks import (
    check_corpus,
    describe_texts,
    refuse_without_chat_template,
    warn_of_passes,
)
from trainmaster.plan.decisions.curriculum import (
    Course,
    choose_course,
    curriculum_table,
    refuse_sizes,
    with_rates,
)
from trainmaster.plan.decisions.device import choose_target
from trainmaster.plan.decisions.disk import check_disk, data_gib, disk_gib
from trainmaster.plan.decisions.environment import (
    choose_environment,
    choose_requirements,
    environment_gib,
    facts_to_train_by,
    warn_of_cuda_without_gpu,
    with_packages,
)
from trainmaster.plan.decisions.estimate import estimates, hours_of, hours_within
from trainmaster.plan.decisions.evaluation_cadence import with_evaluation_cadence
from trainmaster.plan.decisions.fewer_nodes import check_min_nodes
from trainmaster.plan.decisions.fit import LITTLE_ROOM, Fitted, check_host_memory, fit
from trainmaster.plan.decisions.hardware import recommend_gpu
from trainmaster.plan.decisions.input_checks import check_inputs
from trainmaster.plan.decisions.irreducible_loss import warn_of_unreachable_loss
from trainmaster.plan.decisions.learning_rate import choose_learning_rate, usual_learning_rate
from trainmaster.plan.decisions.length import (
    choose_checkpoint_interval,
    choose_longest_runtime_s,
    choose_warmup,
)
from trainmaster.plan.decisions.memory import GIB, STATE_BYTES_PER_PARAMETER, checkpoint_bytes
from trainmaster.plan.decisions.method import Method, choose_method
from trainmaster.plan.decisions.model import (
    BYTE_VOCABULARY,
    Network,
    choose_network,
    warn_of_own_names,
)
from trainmaster.plan.decisions.money import check_lease, choose_mirror, within_budget_s
from trainmaster.plan.decisions.objective import describe_objective
from trainmaster.plan.decisions.optimizer import choose_optimizer, choose_schedule_kind
from trainmaster.plan.decisions.preset import with_sizes
from trainmaster.plan.decisions.recipe_values import (
    find_recipe,
    with_recipe_training,
    with_recipe_values,
)
from trainmaster.plan.decisions.sessions import (
    plan_sessions,
    refuse_without_internet,
    where_prepared,
)
from trainmaster.plan.decisions.style_and_optimizer import with_style_and_optimizer
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.decisions.throughput import Step, Throughput, throughput
from trainmaster.plan.decisions.token_budget import with_tokens
from trainmaster.plan.decisions.trainer_process import (
    checked_fp8_lm_head,
    choose_compile,
    choose_deterministic,
    choose_threads,
    choose_variables,
)
from trainmaster.plan.decisions.validation import decide_validation
from trainmaster.plan.decisions.weight_average import record_average_cost
from trainmaster.plan.facts import Calibration, HostFacts, ModelFacts, TokenizerFacts
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.job import plan_job
from trainmaster.plan.result import GpuAdvice, Ledger, Plan
from trainmaster.plan.spec import TrainingSpec, missing_secrets, refuse_what_is_not_built


def plan(
    spec: TrainingSpec,
    facts: HostFacts,
    corpus: CorpusFacts,
    calibration: Calibration | None = None,
    model: ModelFacts | None = None,
    tokenizer: TokenizerFacts | None = None,
    trace: MemoryTrace | None = None,
) -> Plan:
    """The plan of a spec for a host; pure, and the same for the same input.

    `model`: the facts of the existing weights that the spec names. `tokenizer`: None for bytes.
    `trace`: the memory of a step of the plan without it.

    Raises:
        SpecError: NOT_YET_SUPPORTED.
        PlanError: the training is not possible with this data or on this machine.
        HostError: ROOT_NOT_WRITABLE, LEASE_OVER.
        SpendError: SPEND_CAP.
    """
    refuse_what_is_not_built(spec)
    _refuse_unwritable_root(facts)
    ledger = Ledger()
    spec = with_recipe_values(spec, model, corpus, ledger)
    method = choose_method(spec, ledger)
    describe_objective(spec, ledger)
    check_inputs(spec, model, tokenizer)
    spec = with_style_and_optimizer(spec, ledger)
    spec = with_recipe_training(spec, model, ledger)
    check_corpus(spec, corpus, method.form)
    refuse_without_chat_template(spec, corpus, tokenizer)
    describe_texts(corpus, ledger)
    decide_validation(corpus, method.form, ledger)
    facts = facts_to_train_by(spec, facts, ledger)
    tokens = BYTE_VOCABULARY if tokenizer is None else tokenizer.vocab_size
    spec = with_sizes(spec, tokens, ledger)
    missing = _missing_inputs(model, ledger)
    network = choose_network(spec, model, tokens, ledger)
    basis = _basis(spec, facts, method, corpus, calibration, network, ledger, trace)
    spec = with_evaluation_cadence(
        spec, find_recipe(spec, model), basis.fitted.batch, basis.steps, basis.speed, ledger
    )
    decided = _decide_open_values(spec, facts, basis, model, ledger)
    strategy = decided.fitted.sharing.strategy
    required = choose_requirements(
        spec,
        facts,
        decided.environment,
        strategy,
        ledger,
        tokenizer=tokenizer,
        compression=corpus.compression,
    )
    inputs_gib = sum(folder.size_bytes for folder in (model, tokenizer) if folder is not None) / GIB
    refuse_without_internet(spec, facts, (model, tokenizer), required)
    sessions = plan_sessions(facts, basis.hours, basis.target.device == "cuda", ledger)
    needed_gib = _checked_disk_gib(spec, facts, corpus, basis, inputs_gib)
    _warn(spec, facts, corpus, basis, ledger)
    if method.name == "pretrain" and spec.objective == CAUSAL:
        warn_of_unreachable_loss(spec, network, basis.total_tokens, tokens, ledger)
    sizes = _sizes(basis, needed_gib)
    config = resolved_config(spec, decided, facts, corpus, model, tokenizer)
    warn_of_own_names(spec, config, ledger)
    config |= _job_config(spec, facts, decided, basis.hours, ledger)
    return Plan(
        config=with_packages(spec, config, required),
        decisions=tuple(ledger.decisions),
        curriculum=curriculum_table(config),
        estimates=estimates(
            sizes,
            basis.fitted.memory,
            basis.total_tokens,
            basis.speed,
            facts,
            sessions=sessions,
            is_traced=basis.fitted.is_traced,
        ),
        gpu=_gpu_advice(basis),
        warnings=tuple(ledger.warnings),
        launchable=basis.target.on_host,
        missing=missing,
        requirements=required,
    )


def _missing_inputs(model: ModelFacts | None, ledger: Ledger) -> tuple[str, ...]:
    """What has to be there before the launch, a sentence each."""
    missing = () if model is None or model.missing is None else (model.missing,)
    for sentence in missing:
        ledger.warn(f"{sentence} The launch needs them.")
    return missing


def _job_config(
    spec: TrainingSpec, facts: HostFacts, decided: Decided, hours: float | None, ledger: Ledger
) -> dict[str, Any]:
    job = plan_job(spec, facts, decided, hours, ledger)
    return {} if job is None else {"slurm": job}


def _sizes(basis: _Basis, disk_gib: float) -> dict[str, float | int | None]:
    fitted = basis.fitted
    return {
        "parameters": basis.network.parameters,
        "trained_parameters": fitted.trained if basis.method.has_adapter else None,
        "disk_gib": None if fitted.trained is None else round(disk_gib, 2),
    }


@dataclass(frozen=True, slots=True)
class _Basis:
    """The decisions that the others depend on; `speed` is None if unknown."""

    method: Method
    network: Network
    target: Target
    fitted: Fitted
    course: Course
    compiled: bool
    speed: Throughput | None

    @property
    def steps(self) -> int:
        return self.course.steps

    @property
    def total_tokens(self) -> int:
        return self.course.tokens

    @property
    def hours(self) -> float | None:
        return hours_of(self.total_tokens, self.speed)


def _basis(
    spec: TrainingSpec,
    facts: HostFacts,
    method: Method,
    corpus: CorpusFacts,
    calibration: Calibration | None,
    network: Network,
    ledger: Ledger,
    trace: MemoryTrace | None,
) -> _Basis:
    if spec.data.prepare == "auto" and method.form == "shards":
        _decide_where_prepared(spec, facts, ledger)
    target = choose_target(spec, facts, ledger)
    fitted = fit(spec, network, method, target, ledger, trace)
    check_host_memory(fitted, target, facts)
    check_min_nodes(spec, target, fitted, ledger)
    refuse_sizes(spec, fitted.sharing.strategy)
    record_average_cost(spec, fitted.sharing.strategy, fitted.trained, ledger)
    step = Step(
        fitted.sharing,
        fitted.batch.micro_batch * spec.data.seq_len * method.sequences,
        target.precision,
        compiled=False,
        passes=method.passes,
        frozen=method.has_adapter,
    )
    if spec.adapter is not None and network.architecture is not None:
        adapted = (spec.adapter, network.architecture, framework_of(spec))
        merged = merged_bytes(*adapted, target.precision)
        step = replace(step, adapted=adapted_features(*adapted), merged_bytes=merged)

    def decided(compiled: bool, ledger: Ledger) -> _Basis:
        """With the tokens that `limits` allow at the speed of compiled steps, or of others."""
        slowest = throughput(
            network.architecture, method, target, replace(step, compiled=compiled), calibration
        )
        sized = with_tokens(spec, network, corpus, slowest, facts, ledger)
        course = choose_course(sized, fitted.batch, method, corpus, ledger)
        compiled = choose_compile(spec, facts, target, fitted.sharing, course.steps, ledger)
        speed = throughput(
            network.architecture, method, target, replace(step, compiled=compiled), calibration
        )
        return _Basis(method, network, target, fitted, course, compiled, speed)

    # Whether to compile depends on the steps, and compiled ones are more.
    is_open = spec.tokens == "auto"
    return decided(is_open and decided(False, Ledger()).compiled, ledger)


def _decide_where_prepared(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> None:
    if where_prepared(spec, facts) == "here":
        reason = "Prepared once, shards are uploaded as a private data set for all sessions."
        ledger.decide("data.prepare", "here", reason)
    else:
        ledger.decide("data.prepare", "box", "The host prepares the shards and caches them.")


def _decide_open_values(
    spec: TrainingSpec,
    facts: HostFacts,
    basis: _Basis,
    model: ModelFacts | None,
    ledger: Ledger,
) -> Decided:
    target, steps = basis.target, basis.steps
    within = hours_within(basis.total_tokens, basis.speed)
    check_lease(facts, within, ledger)
    longest_s = choose_longest_runtime_s(spec, basis.hours, ledger)
    lr = choose_learning_rate(spec, basis.method, basis.network, basis.total_tokens, ledger)
    return Decided(
        method=basis.method,
        network=basis.network,
        target=target,
        fitted=basis.fitted,
        lr=lr,
        usual_lr=usual_learning_rate(spec, basis.method, basis.network),
        optimizer=choose_optimizer(spec, basis.network, ledger),
        schedule_kind=choose_schedule_kind(spec, ledger),
        warmup_steps=choose_warmup(spec, find_recipe(spec, model), steps, ledger),
        steps=steps,
        phases=with_rates(basis.course.phases, spec, lr),
        ramp=basis.course.ramp,
        checkpoint_every=choose_checkpoint_interval(spec, basis.hours, ledger),
        best_metric=choose_best_metric(spec, basis.method, ledger),
        mirror=choose_mirror(spec, facts, ledger),
        max_runtime_s=within_budget_s(spec, facts, within, longest_s, ledger),
        threads=choose_threads(spec, facts, target, ledger),
        compile=basis.compiled,
        deterministic=choose_deterministic(spec, target, ledger),
        attention=choose_attention(spec, model, target, ledger),
        fp8_lm_head=checked_fp8_lm_head(spec, basis.network, facts, target),
        environment=choose_environment(spec, facts, target, ledger),
        env=choose_variables(spec, target, facts, ledger),
    )


def _refuse_unwritable_root(facts: HostFacts) -> None:
    folders = [("runs", facts.root, facts.root_writable)]
    if facts.cache is not None:
        folders.append(("shared files", facts.cache, facts.cache_writable))
    for use, folder, writable in folders:
        if not writable:
            raise HostError(
                "ROOT_NOT_WRITABLE",
                f"The folder for {use} on {facts.hostname}, {folder}, can't be written.",
                "Make it writable, or set the host's root or cache to a writable folder.",
                field="host",
            )


def _checked_disk_gib(
    spec: TrainingSpec, facts: HostFacts, corpus: CorpusFacts, basis: _Basis, inputs_gib: float
) -> float:
    """The maximum disk use of the run; `inputs_gib`: models and tokenizers in the cache.

    Raises:
        PlanError: DISK_TOO_SMALL, the host lacks even the minimum.
    """
    trained = basis.fitted.trained or 0
    per_checkpoint = checkpoint_bytes(spec, basis.network.architecture)
    built_gib, most_built_gib = environment_gib(spec, facts, basis.target)
    kept_gib = disk_gib(spec, trained, per_checkpoint, basis.steps, corpus) + inputs_gib
    if basis.target.on_host:
        in_cache_gib = data_gib(spec, corpus) + inputs_gib + built_gib
        one_gib = trained * per_checkpoint / GIB
        check_disk(spec, kept_gib + built_gib, one_gib, facts, cache_gib=in_cache_gib)
    return kept_gib + most_built_gib


def _warn(
    spec: TrainingSpec, facts: HostFacts, corpus: CorpusFacts, basis: _Basis, ledger: Ledger
) -> None:
    warn_of_cuda_without_gpu(spec, facts, ledger)
    if basis.method.form != "dataset":
        warn_of_passes(basis.total_tokens, corpus, ledger)
    for tracker, variable in missing_secrets(spec.tracking, spec.secrets, spec.env):
        ledger.warn(
            f"tracking.{tracker} writes to a service that needs {variable}, which is not under "
            f"`secrets`: list it there, or its records may be lost."
        )


def _gpu_advice(basis: _Basis) -> GpuAdvice:
    model, count = basis.network.architecture, basis.network.parameters
    target = basis.target
    gpus = target.gpus * target.nodes
    planned = target.name if gpus < 2 else f"{gpus}x {target.name}"
    if model is None or count is None:
        reason = "The model's sizes are not known before it is on the host."
        return GpuAdvice(recommended="unknown", reason=reason, planned=planned)
    method = basis.method
    per_token = flops_per_token(model, method.passes, frozen=method.has_adapter)
    total_flops = per_token * method.sequences * basis.total_tokens
    memory = basis.fitted.memory
    if basis.method.has_adapter and memory is not None:
        count = round(memory.state_gib * GIB / STATE_BYTES_PER_PARAMETER)
    recommended, reason = recommend_gpu(count, total_flops)
    if gpus and memory is not None and recommended != "none":
        room = f"{gib_text(memory.total_gib)} of {gib_text(target.memory_gib)}"
        each = f" on each, by {basis.fitted.sharing.strategy}" if gpus > 1 else ""
        fits = memory.total_gib <= target.memory_gib
        reason = f"{'It fits' if fits else LITTLE_ROOM}: {room}{each}."
        return GpuAdvice(recommended=planned, reason=reason, planned=planned)
    if basis.method.has_adapter and memory is not None and recommended != "none":
        reason = (
            f"Frozen weights and an adapter take {gib_text(memory.state_gib)} of training state."
        )
    return GpuAdvice(recommended=recommended, reason=reason, planned=planned)

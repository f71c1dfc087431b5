"""From a spec to its plan: probes the host and the data, then plans."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from trainer_runtime.core.alerts.condition import ConditionError, parse_condition
from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.frameworks import FrameworkName
from trainer_runtime.core.protocol.command import command, option
from trainmaster.alerts.destinations import destinations, refuse_unknown_destinations, sender_of
from trainmaster.answers.runs import PlanAnswer, PlanDecision
from trainmaster.backends import DEBUG
from trainmaster.calls.stages import enter_stage
from trainmaster.calls.work import remedied
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import SpecError, StateError, UsageError
from trainmaster.plan import (
    Calibration,
    Decision,
    HostFacts,
    Plan,
    plan,
    plan_program,
)
from trainmaster.plan.decisions.money import LEAST_LEASE_S, lease_over
from trainmaster.plan.decisions.nodes import in_a_list
from trainmaster.plan.decisions.recipe_values import with_recipe_values
from trainmaster.plan.decisions.trainer_process import with_least_threads
from trainmaster.plan.planned import NO_CORPUS, Planned, with_notes
from trainmaster.plan.spec import (
    ATTACHED_NAMES,
    TrainingSpec,
    field_lines,
    framework_asked_about,
    read_attached,
)
from trainmaster.runs.planning.calibration import measured_on
from trainmaster.runs.planning.fetched_sources import askable
from trainmaster.runs.planning.mirror_path import refuse_unwritable_mirror
from trainmaster.runs.planning.probe_code import probe_code
from trainmaster.runs.planning.probe_data import probe_data
from trainmaster.runs.planning.probe_host import may_run_python, probe_host
from trainmaster.runs.planning.probe_image import find_image
from trainmaster.runs.planning.probe_model import probe_inputs
from trainmaster.runs.planning.probe_nodes import probe_nodes
from trainmaster.runs.planning.spec_policy import (
    allow,
    beyond_policy,
    load_allowed_spec,
    places_of,
    refuse_private_inputs,
)
from trainmaster.runs.planning.trace_memory import not_traced, traced_plan
from trainmaster.runs.planning.write_plan import refuse_unwritable, write_plan
from trainmaster.runs.status.unattended import ends_itself, needs_of, next_session, unattended
from trainmaster.store.secret_values import HF_TOKEN, find_values
from trainmaster.sync.keeper_state import keeper_problem
from trainmaster.sync.mirrored_checkpoints import OPERATOR
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.upload_wheels import with_place_of_wheels

_SMALLER = (
    "Leave what is not the program's, or not text, out of the folders that the spec names; or plan "
    "in a shell, which has no limit."
)
_NOT_RUN = (
    "`environment.python` was not run for this plan, since no person has trusted it: its version "
    f"and packages are checked by launch, which asks the user. {command('trust', 'PATH')} does "
    "before."
)


async def plan_run(
    workspace: Workspace,
    spec: str,
    *,
    host: str | None = None,
    sets: Sequence[str] = (),
    confirm: Confirm | None = None,
    detail: bool = True,
    write: Path | None = None,
    trace: bool = False,
) -> PlanAnswer:
    """The plan of a launch of this spec (a path, or YAML text); nothing is started. Of a framework
    alone (`framework: hf`) the fields that it takes.

    `confirm`: who allows what lies beyond the caller's policy. `detail`: the reason of each
    decision; of a framework, all fields, and not one screen of them. `write`: a folder for the
    plan's documents. `trace`: the memory is that of a traced step.

    Raises:
        UsageError: `BAD_ARGUMENT`, the folder holds something, or the plan has no documents.
        TrainmasterError: the launch is impossible.
    """
    if write is not None:
        refuse_unwritable(write)
    framework = framework_asked_about(spec)
    if framework is not None:
        return _fields(framework, detail=detail)
    planned = await plan_spec(
        workspace, spec, host, sets, confirm=confirm, action="plan", trace=trace
    )
    image_decisions = await find_image(workspace.backend(planned.spec.host), planned.config)
    planned = with_notes(planned, decisions=image_decisions)
    needs = unattended_plan(workspace, planned.spec, planned.config)
    made = answer(planned, _launch_arguments(spec, host, sets))
    if write is not None:
        made = made.model_copy(update={"next_step": _written(planned, made, write)})
    if not detail:
        made = made.model_copy(update={"decisions": _without_reasons(planned.decisions)})
    return made.model_copy(update={"unattended": needs})


def _written(planned: Planned, made: PlanAnswer, folder: Path) -> str:
    """Raises: UsageError: `BAD_ARGUMENT`, of a program, whose values are its own."""
    if planned.code is not None:
        raise UsageError(
            "BAD_ARGUMENT",
            "Pages describe a training of ours, and `framework` is script.",
            f"Leave {option('--write')} out.",
            field="--write",
        )
    held = write_plan(planned.plan, planned.spec.host, planned.plan.warnings, folder)
    return f"{held} {made.next_step}"


def _fields(framework: FrameworkName, *, detail: bool) -> PlanAnswer:
    lines = field_lines(framework, everything=detail)
    left_out = [line for line in field_lines(framework, everything=True) if line not in lines]
    names = dict.fromkeys(re.split(r"[.:\[]", line, maxsplit=1)[0] for line in left_out)
    more = f"The details of this call list further fields: of {', '.join(names)}. "
    return PlanAnswer(
        name=framework,
        fields=lines,
        next_step=f"{'' if detail else more}Write a spec with these; {command('plan', 'SPEC')} "
        "checks it.",
    )


def _without_reasons(decisions: Sequence[Decision]) -> list[PlanDecision]:
    return [PlanDecision(field=decision.field, value=decision.value) for decision in decisions]


async def plan_spec(
    workspace: Workspace,
    spec: str,
    host: str | None,
    sets: Sequence[str],
    *,
    confirm: Confirm | None = None,
    action: Literal["plan", "launch"] = "launch",
    trace: bool = False,
) -> Planned:
    """Load a spec, probe its host and its data, and plan it.

    `confirm`: who allows what lies beyond the caller's policy; without, that is refused, and an
    interpreter of this machine that nobody has trusted is not run. `trace`: the memory is that of
    a traced step.

    Raises:
        TrainmasterError: the launch is impossible; nothing was started or changed.
    """
    with remedied(_SMALLER):
        named = [*sets, *([f"host={json.dumps(host)}"] if host else [])]
        return await _planned(workspace, spec, named, confirm, action, trace=trace)


async def _planned(
    workspace: Workspace,
    spec: str,
    sets: Sequence[str],
    confirm: Confirm | None,
    action: Literal["plan", "launch"],
    *,
    trace: bool,
) -> Planned:
    loaded = load_allowed_spec(workspace, spec, sets)
    _refuse_bad_rehearsal(loaded)
    refuse_private_inputs(workspace.home, loaded)
    beyond = beyond_policy(workspace, loaded)
    await allow(workspace, beyond, action, f"{loaded.name} on {loaded.host}", confirm)
    beyond.refuse_changed()
    is_run = (confirm is not None and action == "launch") or may_run_python(
        workspace, loaded, beyond
    )
    secrets = find_values(workspace.home, loaded.secrets, os.environ)  # report missing ones first
    refuse_unknown_destinations(workspace.home, (alert.to for alert in loaded.alerts))
    backend, *_ = [workspace.backend(host) for host in (loaded.host, *loaded.other_hosts)]
    enter_stage(f"examining {loaded.host}")
    facts = with_price(workspace, loaded.host, await probe_host(backend, loaded, is_run=is_run))
    await refuse_unwritable_mirror(backend, loaded.checkpoint.mirror, write=False)
    attached = await in_thread(read_attached, loaded)
    facts = await in_thread(with_place_of_wheels, loaded, facts)
    if loaded.script is not None:
        if trace:
            raise not_traced("what a program takes is known once it has run")
        enter_stage("reading the program")
        code, texts = await probe_code(workspace, loaded, loaded.script)
        made = plan_program(loaded, facts, code)
        if loaded.other_hosts:
            made = await _with_nodes(workspace, loaded, facts, made, is_run=is_run)
        attached = {**attached, **texts}
        return Planned(
            loaded, facts, NO_CORPUS, Calibration(), made, attached, allowed=beyond, code=code
        )
    enter_stage("reading model and tokenizer")
    token = secrets.get(HF_TOKEN)
    model, tokenizer = await probe_inputs(workspace, loaded, backend, token)
    enter_stage("listing the data")
    ask = askable(loaded, secrets, workspace.policy)
    listed = await probe_data(with_recipe_values(loaded, model), backend, tokenizer, ask=ask)
    unmeasured = plan(loaded, facts, listed, None, model, tokenizer)
    calibration = measured_on(workspace, loaded.host, unmeasured.config)

    def plan_by(traced: MemoryTrace | None) -> Plan:
        return plan(loaded, facts, listed, calibration, model, tokenizer, traced)

    made = await traced_plan(plan_by) if trace else plan_by(None)
    if not is_run:
        made = made.model_copy(update={"warnings": [*made.warnings, _NOT_RUN]})
    if loaded.other_hosts:
        made = await _with_nodes(workspace, loaded, facts, made, is_run=is_run)
    return Planned(loaded, facts, listed, calibration, made, attached, model, tokenizer, beyond)


async def _with_nodes(
    workspace: Workspace, spec: TrainingSpec, facts: HostFacts, made: Plan, *, is_run: bool
) -> Plan:
    """The plan with where its hosts reach one another."""
    hosts = [spec.host, *spec.other_hosts]
    enter_stage(f"connecting {' and '.join(hosts)}")
    others = await asyncio.gather(
        *(probe_host(workspace.backend(host), spec, is_run=is_run) for host in spec.other_hosts)
    )
    for other in others:
        if other.slurm is not None:
            raise in_a_list(other.hostname)
    nodes = await probe_nodes(workspace, hosts, [facts, *others])
    meeting = f"They meet at {nodes.nodes[0].address}, port {nodes.port}, tried from each."
    decision = Decision(field="host", value=", ".join(hosts), reason=meeting)
    return made.model_copy(
        update={
            "config": {
                **with_least_threads(spec, made.config, others),
                "nodes": nodes.to_dict(),
            },
            "decisions": (*made.decisions, decision),
        }
    )


def on_record(planned: Planned) -> dict[str, Any]:
    """What a run's record keeps of its plan: what `plan_again` takes, where its paths led, and what
    was expected."""
    estimates = planned.plan.estimates.model_dump(mode="json", exclude_none=True)
    return {**planned.to_dict(), "places": places_of(planned.spec), "estimates": estimates}


def refuse_changed(planned: Planned) -> None:
    """Refuse to start code that is not what the caller was allowed.

    Raises:
        PolicyError: `POLICY_PROGRAM`.
    """
    texts = planned.attached
    if planned.allowed is not None:
        planned.allowed.refuse_changed(
            {field: texts[name] for field, name in ATTACHED_NAMES.items() if name in texts}
        )


def with_price(workspace: Workspace, host: str, facts: HostFacts) -> HostFacts:
    """The facts with what renting the host costs, and until when it is rented."""
    instance = workspace.control.instances.by_host(host)
    if instance is None:
        return facts
    now = time.time()  # by the client's clock; the host's may be off
    price = {
        "usd_per_hour": instance.usd_per_h,
        "lease_end_t": instance.lease_end_t,
        "measured_at": now,
    }
    return facts.model_copy(update=price)


def refuse_where_lease_is_over(workspace: Workspace, host: str, now: float) -> None:
    """Raises:
    HostError: `LEASE_OVER`, the rest of a rented host's lease is too short.
    """
    instance = workspace.control.instances.by_host(host)
    if instance is not None and instance.lease_end_t - now < LEAST_LEASE_S:
        raise lease_over(host, instance.lease_end_t - now)


def _refuse_bad_rehearsal(spec: TrainingSpec) -> None:
    """Raises:
    SpecError: `INVALID_VALUE` for variables that the debug host can't read, `NOT_YET_SUPPORTED`
        for a program, since it runs none.
    """
    if spec.host != DEBUG:
        return
    if spec.script is not None:
        raise SpecError(
            "NOT_YET_SUPPORTED",
            "`host` is debug, which only plays trainings of ours and runs no program.",
            f"Set host to local, or to a host that {command('hosts')} lists.",
            field="host",
        )
    from trainmaster.backends.debug.faults import FAULTS_VARIABLE, STEP_VARIABLE, check_variables

    problem = check_variables(spec.env)
    if problem is not None:
        raise SpecError(
            "INVALID_VALUE",
            f"The debug host can't read its variables: {problem}.",
            f'Write for example {FAULTS_VARIABLE}: "kill@30 nan@50", {STEP_VARIABLE}: "0.01".',
            field="env",
        )


def _launch_arguments(spec: str, host: str | None, sets: Sequence[str]) -> list[str]:
    """What `launch` takes for what was planned; a spec's text is not repeated."""
    is_text = "\n" in spec or ":" in spec
    words = ["SPEC" if is_text else spec, *(["--host", host] if host else [])]
    return [*words, *(word for item in sets for word in ("--set", item))]


def answer(planned: Planned, launch_arguments: Sequence[str]) -> PlanAnswer:
    """The answer that describes the plan."""
    made = planned.plan
    spec, *options = launch_arguments
    if made.missing:
        following = (
            f"{made.missing[0]} Name the weights by model.hub or model.path; then "
            f"{command('launch', spec, *options)} starts it."
        )
    elif made.launchable:
        following = f"Launch it: {command('launch', spec, *options)}."
    else:
        compute = planned.spec.compute
        count = str(compute.gpus) if isinstance(compute.gpus, int) else "1"
        own_gpu = ("--set", "compute.gpu=null")
        following = (
            f"{planned.spec.host} lacks this GPU. For what it has: "
            f"{command('plan', spec, *_without_gpu(options), *own_gpu)}; "
            f"{command('offers', '--gpu', str(compute.gpu), '--count', count)} lists machines for "
            "rent."
        )
    return PlanAnswer(
        name=planned.spec.name,
        host=planned.spec.host,
        decisions=[PlanDecision(**item.model_dump()) for item in planned.decisions],
        curriculum=made.curriculum,
        estimates=made.estimates.model_dump(mode="json", exclude_none=True),
        gpu=made.gpu.model_dump(mode="json"),
        warnings=list(made.warnings),
        next_step=following,
    )


def _without_gpu(options: Sequence[str]) -> list[str]:
    """The options without those that set `compute.gpu`."""
    pairs = zip(options[::2], options[1::2], strict=True)
    return [word for pair in pairs if not pair[1].startswith("compute.gpu=") for word in pair]


def unattended_plan(workspace: Workspace, spec: TrainingSpec, config: ConfigDocument) -> str | None:
    """The field `unattended` of a plan."""
    needs = needs_of(
        config["checkpoint"].get("mirror"),
        next_session(workspace, spec.host),
        ends_itself=ends_itself(workspace, spec.host),
        alerts=_will_send(workspace, spec),
    )
    return unattended(needs, keeper_problem(workspace.home, time.time()))


def _will_send(workspace: Workspace, spec: TrainingSpec) -> bool:
    """By default each destination is notified of a lost contact, which only the client can see."""
    try:
        by_name = destinations(workspace.home)
        if any(destination.defaults for destination in by_name.values()):
            return True
        return any(
            sender_of(by_name[alert.to], parse_condition(alert.when)) == OPERATOR
            for alert in spec.alerts
            if alert.to in by_name
        )
    except (StateError, ConditionError):
        return False  # the plan reports these errors

"""Launches several runs of one spec as one array of a scheduler's jobs.

Each is a run as any other. All are planned before anything is recorded, and recorded at once: from
then on any process that advances them completes the array, which the host submits when its last run
is there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.runs import ArrayAnswer, ArrayRun
from trainmaster.backends import SupervisorFinder
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import HostError, UsageError
from trainmaster.plan.planned import Planned, refuse_unlaunchable
from trainmaster.runs.launch.launch import new_run, rollback, warnings_of
from trainmaster.runs.launch.record_run import record_runs
from trainmaster.runs.planning import plan_run
from trainmaster.runs.planning.mirror_path import refuse_unwritable_mirror
from trainmaster.runs.upkeep.advance import advance
from trainmaster.settings.yaml12 import load_yaml
from trainmaster.store import secret_values
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.run import Run
from trainmaster.store.run_id import new_run_id
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

LABEL = "array"
# As many jobs as a scheduler's user may commonly have at a time.
MOST_RUNS = 200
# Of these an array takes the largest of any run; in all else its runs have to ask for the same.
_LARGEST = {"limit_minutes", "memory_mib", "cpus", "margin_s", "save_s", "signal_s"}


async def launch_array(
    workspace: Workspace,
    spec: str,
    vary: Sequence[str],
    *,
    at_once: int | None = None,
    host: str | None = None,
    sets: Sequence[str] = (),
    idempotency_key: str | None = None,
    confirm: Confirm | None = None,
) -> ArrayAnswer:
    """Start a run for each combination of the values in `vary` (`FIELD=V1,V2,...`), of which at
    most `at_once` train at a time. The same `idempotency_key` again returns the first call's runs.

    Raises:
        UsageError: `BAD_ARGUMENT`, no values, too many runs, a host without arrays, or runs that
            ask for different nodes.
        TrainmasterError: a launch is impossible; nothing was started.
    """
    asked = json.dumps([spec, host, list(sets), list(vary), at_once])
    digest = hashlib.sha256(asked.encode()).hexdigest()
    key = IdempotencyKey(idempotency_key, "launch", digest) if idempotency_key else None
    name = _known(workspace, key)
    if name is None:
        name = new_run_id(LABEL)
        planned = await _planned(workspace, spec, host, _choices(sets, vary, name), confirm)
        runs = await _recorded(workspace, planned, {"name": name, "at_once": at_once}, key)
        if runs is None:  # the same key, at the same moment, in another process
            name = str(_known(workspace, key))
    return await _placed(workspace, name)


def _choices(sets: Sequence[str], vary: Sequence[str], name: str) -> list[list[str]]:
    """Of each run, what is set: the varied values are labels, too."""
    varied = [_values(text) for text in vary]
    _refuse_twice("field", [choice[0][0] for choice in varied if choice])
    chosen = [list(choice) for choice in itertools.product(*varied)]
    if not 1 < len(chosen) <= MOST_RUNS:
        raise UsageError(
            "BAD_ARGUMENT",
            f"These values make {len(chosen)} run{'s' * (len(chosen) != 1)}; an array has 2 to "
            f"{MOST_RUNS}.",
            f"Give the values of a field behind commas: {option('--vary', 'seed=1,2,3')}.",
            field="--vary",
        )
    return [[*sets, f"labels.{LABEL}={name}", *_varied(choice)] for choice in chosen]


def _values(text: str) -> list[tuple[str, Any]]:
    path, equals, values = text.partition("=")
    read = load_yaml(f"[{values}]") if equals else None
    if not path.strip() or not isinstance(read, list):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{option('--vary', text[:60])} is not of the form FIELD=VALUE,VALUE.",
            f"Write for example {option('--vary', 'seed=1,2,3')}.",
            field="--vary",
        )
    _refuse_twice(f"value of {path.strip()}", [json.dumps(value) for value in read])
    return [(path.strip(), value) for value in read]


def _refuse_twice(what: str, named: Sequence[str]) -> None:
    """Runs that differ in nothing would train the same twice."""
    twice = next((name for index, name in enumerate(named) if name in named[:index]), None)
    if twice is not None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"Twice the same {what}: {twice[:60]}.",
            f"Name each once: {option('--vary', 'seed=1,2,3')}.",
            field="--vary",
        )


def _varied(chosen: Sequence[tuple[str, Any]]) -> Iterator[str]:
    for path, value in chosen:
        text = value if isinstance(value, str) else json.dumps(value)
        yield f"labels.{path.rpartition('.')[2]}={json.dumps(text)}"
        yield f"{path}={json.dumps(value)}"


async def _planned(
    workspace: Workspace,
    spec: str,
    host: str | None,
    choices: Sequence[Sequence[str]],
    confirm: Confirm | None,
) -> list[Planned]:
    plans = []
    for number, sets in enumerate(choices, 1):
        enter_stage(f"planning run {number} of {len(choices)}")
        planned = await plan_run.plan_spec(workspace, spec, host, sets, confirm=confirm)
        refuse_unlaunchable(planned)
        plan_run.refuse_changed(planned)
        if planned.config.get("slurm") is None:
            raise UsageError(
                "BAD_ARGUMENT",
                f"{planned.spec.host} runs no arrays of jobs: that takes a Slurm cluster.",
                f"Name a host that was added with {option('--launcher', 'slurm')}, or launch the "
                f"runs one by one with {option('--set')}.",
                field="--vary",
            )
        plans.append(planned)
    hosts = list(dict.fromkeys(str(planned_run.spec.host) for planned_run in plans))
    if len(hosts) > 1:
        raise UsageError(
            "BAD_ARGUMENT",
            f"The runs name several clusters ({' and '.join(hosts[:2])}), and an array is of one.",
            f"Launch those of each cluster apart, by {option('--host')}.",
            field="--vary",
        )
    return plans


async def _recorded(
    workspace: Workspace,
    planned: Sequence[Planned],
    array: Mapping[str, Any],
    key: IdempotencyKey | None,
) -> list[Run] | None:
    job = {**_job_of_all(planned), "array": {**array, "size": len(planned)}}
    first = planned[0].spec
    await refuse_unwritable_mirror(workspace.backend(first.host), first.checkpoint.mirror)
    made = []
    for index, planned_run in enumerate(planned):
        slurm = {**job, "array": {**job["array"], "index": index}}
        plan = planned_run.plan.model_copy(
            update={"config": {**planned_run.config, "slurm": slurm}}
        )
        made.append(replace(planned_run, plan=plan))
    return await record_runs(
        workspace,
        [planned_run.spec.name for planned_run in made],
        lambda index, run_id, name: new_run(made[index], run_id, name),
        Desired(DesiredState.RUNNING, generation=1),
        key,
        secrets=secret_values.find_values(workspace.home, first.secrets, os.environ),
    )


def _job_of_all(planned: Sequence[Planned]) -> dict[str, Any]:
    """What an array asks for: each of its tasks gets the same."""
    jobs = [planned_run.config["slurm"] for planned_run in planned]
    nodes = [{"nodes": planned_run.config["compute"].get("nodes")} for planned_run in planned]
    _refuse_unlike([{**job, **more} for job, more in zip(jobs, nodes, strict=True)])
    longest = max(jobs, key=lambda job: job["limit_minutes"])
    most = {name: max(job[name] or 0 for job in jobs) or None for name in ("memory_mib", "cpus")}
    return {**longest, **most}


def _refuse_unlike(jobs: Sequence[Mapping[str, Any]]) -> None:
    for job in jobs:
        for name in job.keys() - _LARGEST:
            if job[name] != jobs[0][name]:
                raise UsageError(
                    "BAD_ARGUMENT",
                    f"The runs ask for different nodes ({name}: {jobs[0][name] or 'none'} and "
                    f"{job[name] or 'none'}), and the tasks of an array get the same.",
                    "Launch those that differ apart.",
                    field="--vary",
                )


async def _placed(workspace: Workspace, name: str) -> ArrayAnswer:
    """Place what is not placed yet; the host submits the array with the last."""
    runs = _runs_of(workspace, name)
    host = runs[0].host
    try:
        for number, run in enumerate(runs, 1):
            enter_stage(f"sending run {number} of {len(runs)} to {host}")
            await advance(workspace, run.run_id)
        await SupervisorFinder.of(workspace.backend(host)).supervised([r.run_id for r in runs])
    except HostError as error:
        if not error.unanswered:
            await _take_back(workspace, runs, error)
            raise
    return _answer(workspace, name)


async def _take_back(workspace: Workspace, runs: Sequence[Run], error: HostError) -> None:
    """Remove what was placed and forget the runs, unless some of them may have been queued."""
    placed = [run for run in runs if workspace.control.is_placed(run)]
    if len(placed) == len(runs) and error.code != "JOB_REFUSED":
        return
    for run in runs:
        if run in placed:
            with suppress(HostError):
                await workspace.backend(run.host).remove(run.run_id, ["."])
                workspace.control.set_unplaced(run)
                workspace.control.slurm.forget(run.run_id)
        await rollback(workspace, run)


def _known(workspace: Workspace, key: IdempotencyKey | None) -> str | None:
    run_id = None if key is None else workspace.control.keys.result(key)
    return None if run_id is None else workspace.control.run(run_id).labels.get(LABEL)


def _runs_of(workspace: Workspace, name: str) -> list[Run]:
    """The runs of an array, by their index."""
    runs = [run for run in workspace.control.runs() if run.labels.get(LABEL) == name]
    return sorted(runs, key=lambda run: int(run.document["slurm"]["array"]["index"]))


def _answer(workspace: Workspace, name: str) -> ArrayAnswer:
    views = [load_view(workspace, run.run_id) for run in _runs_of(workspace, name)]
    ids = [view.run.run_id for view in views]
    return ArrayAnswer(
        array=name,
        host=views[0].run.host,
        runs=[
            ArrayRun(
                run_id=view.run.run_id,
                state=view.state.value,
                labels={key: text for key, text in view.run.labels.items() if key != LABEL},
            )
            for view in views
        ],
        warnings=warnings_of(workspace, views[0]),
        next_step=f"{command('runs', '--label', f'{LABEL}={name}')} lists them, "
        f"{command('metrics', '--label', f'{LABEL}={name}')} compares them. "
        f"{command('wait', *ids, '--until', 'end', '--timeout', '3600')} submits their "
        "next jobs meanwhile; so does the keeper.",
    )

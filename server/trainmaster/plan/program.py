"""Plans a program that is run as it is: where it runs, what travels, how it continues. Pure."""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.protocol.figures import size_text
from trainmaster.errors.errors import SpecError
from trainmaster.plan.config import CONFIG_VERSION
from trainmaster.plan.decisions.container import choose_image, is_contained
from trainmaster.plan.decisions.device import choose_target
from trainmaster.plan.decisions.environment import choose_environment, may_install
from trainmaster.plan.decisions.length import choose_longest_runtime_s
from trainmaster.plan.decisions.money import check_lease, choose_mirror, within_budget_s
from trainmaster.plan.decisions.program_file import refuse_missing_file
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.decisions.trainer_process import choose_variables
from trainmaster.plan.facts import CodeFacts, FolderFacts, HostFacts
from trainmaster.plan.fields.script import ScriptSpec
from trainmaster.plan.job import plan_program_job
from trainmaster.plan.result import Estimates, GpuAdvice, Ledger, Plan
from trainmaster.plan.spec import EnvironmentSpec, TrainingSpec

FOLDER = "code"
_MIB = 2**20
_STATES = {
    None: "changes unknown",
    True: "with changes, which code.diff holds",
    False: "unchanged",
}
_OVERDUE_AFTER = "30m"


def plan_program(spec: TrainingSpec, facts: HostFacts, code: CodeFacts) -> Plan:
    """The plan of a spec with `framework: script`; the same for the same input.

    Raises:
        SpecError: NOT_YET_SUPPORTED.
        PlanError: GPU_NOT_FOUND, COMMAND_NOT_FOUND.
        HostError: LEASE_OVER.
        SpendError: SPEND_CAP.
    """
    script = spec.script
    if script is None:
        raise SpecError("MISSING_FIELD", "`script` is missing.", "Give it.", field="script")
    refuse_missing_file(script, code)
    ledger = Ledger()
    _decide_code(script, code, ledger)
    _decide_data(code, ledger)
    target = choose_target(spec, facts, ledger)
    ledger.forget("precision")
    check_lease(facts, None, ledger)
    _decide_resume(script, ledger)
    config = _config(spec, script, facts, code, ledger)
    config["compute"] = {
        "device": target.device,
        "gpus": target.gpus,
        "gpu": spec.compute.gpu,
        "processes": target.processes,
        "nodes": target.nodes,
        "threads": None,
        **_container(spec),
    }
    job = plan_program_job(facts, target, ledger)
    if job is not None:
        config["slurm"] = job
    config["env"] = _variables(spec, target, facts, ledger)
    environment = _environment(spec, facts, target, ledger)
    if environment is not None:
        config["environment"] = environment
    inputs = [
        *([_input("code", code, facts)] if code.sent_as is not None else []),
        *(
            _input(f"data {data.name}", data, facts)
            for data in code.data
            if data.sent_as is not None
        ),
    ]
    if inputs:
        config["inputs"] = inputs
    reason = "What the program needs is its own affair."
    return Plan(
        config=config,
        decisions=tuple(ledger.decisions),
        estimates=Estimates(),
        gpu=GpuAdvice(recommended="unknown", reason=reason, planned=target.name),
        warnings=tuple(ledger.warnings),
        launchable=target.on_host,
    )


def _config(
    spec: TrainingSpec, script: ScriptSpec, facts: HostFacts, code: CodeFacts, ledger: Ledger
) -> dict[str, Any]:
    """`config.json` without what depends on the device."""
    longest_s = choose_longest_runtime_s(spec, None, ledger)
    limit_s = within_budget_s(spec, facts, None, longest_s, ledger)
    metric = spec.checkpoint.metric
    return {
        "config_version": CONFIG_VERSION,
        "name": spec.name,
        "framework": spec.framework,
        "script": _script(spec, script, facts, code),
        "data": {"sources": [], "cache_dir": facts.cache_folder},
        "steps": spec.steps,
        "seed": spec.seed,
        "checkpoint": {
            "every": _every(spec, script, ledger),
            "metric": "val_loss" if metric == "auto" else metric,
            "mirror": choose_mirror(spec, facts, ledger),
        },
        "recovery": spec.recovery.model_dump(mode="json"),
        "secrets": list(spec.secrets),
        "labels": dict(spec.labels),
        "alerts": [alert.model_dump(mode="json") for alert in spec.alerts],
        "limits": {"max_runtime_s": limit_s, "budget_usd": spec.limits.budget_usd},
        "pty": spec.pty,
    }


def _decide_code(script: ScriptSpec, code: CodeFacts, ledger: Ledger) -> None:
    if code.in_place:
        ledger.decide("script.path", script.path, "A folder of the host: the program runs there.")
        return
    files = travelling(len(code.files), code.total_bytes)
    if code.commit is None:
        what = "no git there: all but caches"
    else:
        state = _STATES[code.dirty]
        what = f"commit {code.commit[:12]}, {state}; ignored files stay"
    left = f" Left behind: {'; '.join(code.left)}." if code.left else ""
    ledger.decide("script.path", script.path, f"{files}: {what}.{left}")


def travelling(files: int, size_bytes: int) -> str:
    """What is sent to the host: `2 files, 1.4 KiB travel`."""
    if files == 0:
        return "nothing travels"
    return (
        f"{files:,} files, {size_text(size_bytes)} travel"
        if files > 1
        else (f"1 file, {size_text(size_bytes)}, travels")
    )


def _decide_data(code: CodeFacts, ledger: Ledger) -> None:
    for index, data in enumerate(code.data):
        if data.sent_as is None:
            reason = "It is on the host: the program reads it in place."
        else:
            reason = f"{travelling(len(data.files), data.size_bytes)}."
        path = (
            data.path if data.file is None or data.sent_as is None else f"{data.path}/{data.file}"
        )
        ledger.decide(f"data.sources[{index}].path", path, reason)


def _decide_resume(script: ScriptSpec, ledger: Ledger) -> None:
    saves = script.checkpoints
    if saves is None:
        ledger.warn("Nothing is saved that could be resumed from: a restart starts over.")
        return
    if script.resume is None:
        ledger.warn(
            "script.resume is null: checkpoints are kept and verified, but a restart starts over."
        )
    elif not script.resume:
        reason = "The program continues from $TRAINMASTER_CHECKPOINT, each time verified again."
        ledger.decide("script.resume", [], reason)
    else:
        reason = "Appended to continue from the newest checkpoint that verifies again."
        ledger.decide("script.resume", list(script.resume), reason)
    if saves.keep_latest is None and not any(letter in saves.path for letter in "*?["):
        reason = "Every save replaces the file: two copies are kept, so that a torn one costs one."
        ledger.decide("script.checkpoints.keep_latest", 2, reason)


def _script(
    spec: TrainingSpec, script: ScriptSpec, facts: HostFacts, code: CodeFacts
) -> dict[str, Any]:
    place = code.folder(facts.cache_folder)
    environment = spec.environment
    python = environment.python if isinstance(environment, EnvironmentSpec) else None
    return {
        "folder": script.path.removeprefix(ON_BOX) if code.in_place else FOLDER,
        "source": None if code.in_place else place,
        "command": list(script.command),
        "resume": None if script.resume is None else list(script.resume),
        "elastic": script.elastic,
        "checkpoints": (
            None if script.checkpoints is None else script.checkpoints.model_dump(mode="json")
        ),
        "final": script.final,
        "data": {data.name: data.place(facts.cache_folder) for data in code.data},
        "stop_signal": script.stop_signal,
        "python": python,
        "pattern": script.pattern,
        "commit": code.commit,
        "dirty": code.dirty,
        "digest": code.digest or None,
    }


def _container(spec: TrainingSpec) -> dict[str, Any]:
    compute = spec.compute
    if not is_contained(spec):
        return {}
    return {"launcher": "docker", "image": compute.image, "shm_size": compute.shm_size}


def _environment(
    spec: TrainingSpec, facts: HostFacts, target: Target, ledger: Ledger
) -> dict[str, Any] | None:
    """What the host prepares for the program; None where that is taken as it is."""
    environment = spec.environment
    if is_contained(spec):
        choose_image(spec, facts, ledger)
        return None
    if not isinstance(environment, EnvironmentSpec) or not may_install(spec):
        if environment == "auto":
            reason = "What the program needs is not known: the host's own packages are used."
            ledger.decide("environment", "existing", f"{reason} Or give environment.requirements.")
        return None
    return choose_environment(spec, facts, target, ledger)


def _every(spec: TrainingSpec, script: ScriptSpec, ledger: Ledger) -> int | str:
    """After twice as much without a checkpoint one is overdue; 0: none is expected."""
    every = spec.checkpoint.every
    if script.checkpoints is None:
        return 0
    if every == "auto":
        reason = "The program decides when it saves; after an hour without one that is a finding."
        ledger.decide("checkpoint.every", _OVERDUE_AFTER, reason)
        return _OVERDUE_AFTER
    return every


def _variables(
    spec: TrainingSpec, target: Target, facts: HostFacts, ledger: Ledger
) -> dict[str, str]:
    variables = choose_variables(spec, target, facts, ledger)
    if isinstance(spec.compute.threads, int):
        variables.setdefault("OMP_NUM_THREADS", str(spec.compute.threads))
    return variables


def _input(what: str, folder: FolderFacts, facts: HostFacts) -> dict[str, Any]:
    return {
        "what": what,
        "folder": folder.folder(facts.cache_folder),
        "from": folder.path,
        "hub": None,
        "revision": None,
        "files": [list(file) for file in folder.files],
        "size_bytes": folder.size_bytes,
        "listing": folder.listing,
    }

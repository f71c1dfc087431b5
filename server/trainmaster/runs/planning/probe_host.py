"""Probes the host: its facts, by the interpreter that trains."""

from __future__ import annotations

from contextlib import suppress

from trainmaster.backends import DEBUG, HERE, Backend
from trainmaster.errors.errors import HostError
from trainmaster.plan import HostFacts, may_install
from trainmaster.plan.spec import EnvironmentSpec, TrainingSpec
from trainmaster.runs.planning.spec_policy import Beyond
from trainmaster.runs.planning.trusted_code import PYTHON_FIELD
from trainmaster.sync.workspace import Workspace

_OLDEST_PYTHON = (3, 10)


async def probe_host(backend: Backend, spec: TrainingSpec, *, is_run: bool) -> HostFacts:
    """The host's facts, by the interpreter that trains, or that the environment is built on;
    `is_run`: one that the spec names may be run for that.

    Where the spec names none it is the one that Trainmaster's own side runs on there, or `python3`
    where that alone has PyTorch.
    """
    if spec.compute.launcher == "docker":
        return await backend.facts(None)  # the image's interpreter trains
    python = given_python(spec)
    if python is not None and _is_made_first(spec):
        # It may not exist yet; the host checks it after modules and setup script.
        return (await backend.facts(None)).model_copy(update={"torch": None})
    if python is not None and not is_run:
        unknown = {"torch": None, "packages": None}
        return (await backend.facts(None)).model_copy(update=unknown)
    facts = await backend.facts(None if spec.script is not None else python)
    if spec.host == DEBUG or spec.script is not None or _can_train(facts):
        return facts
    if python is None:
        with suppress(HostError):
            other = await backend.facts("python3")
            if _can_train(other):
                return other
    if may_install(spec) and _is_young_enough(facts):
        return facts
    raise HostError(
        "ENVIRONMENT_UNUSABLE",
        f"{facts.python_label} on {spec.host} is Python {facts.python_version} "
        f"{'with' if facts.torch else 'without'} PyTorch; the training needs it and 3.10 or newer.",
        "Install it there (`pip install torch`), set `environment: {python: PATH}` to an "
        "interpreter that has it, or leave `environment` at auto, which installs it.",
        field="environment",
    )


def may_run_python(workspace: Workspace, spec: TrainingSpec, beyond: Beyond) -> bool:
    """Whether a plan alone may run the interpreter that the spec names."""
    if given_python(spec) is None:
        return True
    if workspace.policy.reads_only and spec.host not in HERE:
        return False
    return all(code.field != PYTHON_FIELD for code in beyond.code)


def _is_made_first(spec: TrainingSpec) -> bool:
    """Whether something that runs on the host may install the interpreter."""
    environment = spec.environment
    return isinstance(environment, EnvironmentSpec) and bool(
        environment.setup or environment.modules
    )


def _can_train(facts: HostFacts) -> bool:
    return facts.torch is not None and _is_young_enough(facts)


def _is_young_enough(facts: HostFacts) -> bool:
    return tuple(int(part) for part in facts.python_version.split(".")[:2]) >= _OLDEST_PYTHON


def given_python(spec: TrainingSpec) -> str | None:
    """The interpreter that the spec names; None for the host's own."""
    return spec.environment.python if isinstance(spec.environment, EnvironmentSpec) else None

"""From a spec to its plan: looks at the host and at the data, then plans."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core import corpus
from trainmaster.answers import PlanAnswer, PlanDecision
from trainmaster.backends import DEBUG, Backend
from trainmaster.calibration import measured_on
from trainmaster.errors import HostError, SpecError
from trainmaster.plan import Calibration, CorpusFacts, Decision, HostFacts, Plan, plan
from trainmaster.spec import EnvironmentSpec, TrainingSpec, load_spec
from trainmaster.workspace import Workspace

_OLDEST_PYTHON = (3, 10)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with everything that it was made from, so that it can be made again, changed."""

    spec: TrainingSpec
    facts: HostFacts
    corpus: CorpusFacts
    calibration: Calibration
    plan: Plan

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config but for the run's id, the interpreter decided too."""
        python = given_python(self.spec) or self.facts.python_path
        return {**self.plan.config, "environment": {"python": python}}

    @property
    def decisions(self) -> list[Decision]:
        """The plan's, and which interpreter trains."""
        if given_python(self.spec) is not None:
            return list(self.plan.decisions)
        torch = self.facts.torch
        reason = f"It has PyTorch {torch.version}." if torch else "Simulated: needs no PyTorch."
        python = Decision(field="environment.python", value=self.facts.python_path, reason=reason)
        return [*self.plan.decisions, python]

    @property
    def spec_text(self) -> str:
        """The spec as JSON, which is YAML too, with absolute paths."""
        return json.dumps(self.spec.model_dump(mode="json", exclude_unset=True), indent=1)

    def to_dict(self) -> dict[str, Any]:
        """What `plan_again` needs besides the spec, and what was shown."""
        return {
            "facts": self.facts.model_dump(mode="json"),
            "corpus": self.corpus.model_dump(mode="json"),
            "calibration": self.calibration.model_dump(mode="json"),
            "decisions": [decision.model_dump(mode="json") for decision in self.decisions],
        }


async def plan_spec(
    workspace: Workspace, spec: str, host: str | None, sets: Sequence[str]
) -> Planned:
    """Load a spec, look at where it is to run and at its data, and plan it.

    Raises:
        TrainmasterError: whatever makes it impossible; nothing was started or changed.
    """
    loaded = load_spec(spec, [*sets, *([f"host={json.dumps(host)}"] if host else [])])
    _refuse_bad_rehearsal(loaded)
    backend = workspace.backend(loaded.host)
    facts = await _look_at_host(backend, loaded)
    listed = await asyncio.to_thread(look_at_data, loaded)
    unmeasured = plan(loaded, facts, listed)
    calibration = measured_on(workspace, loaded.host, unmeasured.config)
    return Planned(loaded, facts, listed, calibration, plan(loaded, facts, listed, calibration))


def plan_again(spec: str, sets: Sequence[str], made: Mapping[str, Any]) -> Planned:
    """The plan of a changed spec from the facts of its first plan: only what was changed differs.

    `made` is what `Planned.to_dict` gave.
    """
    loaded = load_spec(f"{spec}\n", sets)
    facts = HostFacts.model_validate(made["facts"])
    listed = CorpusFacts.model_validate(made["corpus"])
    calibration = Calibration.model_validate(made["calibration"])
    return Planned(loaded, facts, listed, calibration, plan(loaded, facts, listed, calibration))


def _refuse_bad_rehearsal(spec: TrainingSpec) -> None:
    """Raises:
    SpecError: `INVALID_VALUE` for variables that the debug host can't read.
    """
    if spec.host != DEBUG:
        return
    from trainmaster.backends.debug.faults import FAULTS_VARIABLE, STEP_VARIABLE, check_variables

    problem = check_variables(spec.env)
    if problem is not None:
        raise SpecError(
            "INVALID_VALUE",
            f"The debug host can't read its variables: {problem}.",
            f'Write for example {FAULTS_VARIABLE}: "kill@30 nan@50", {STEP_VARIABLE}: "0.01".',
            field="env",
        )


async def _look_at_host(backend: Backend, spec: TrainingSpec) -> HostFacts:
    """The host's facts, as seen by the interpreter that is to train.

    `environment: auto` takes the one that Trainmaster's own side runs on there, else `python3`.
    """
    facts = await backend.facts(given_python(spec))
    if spec.host == DEBUG or _can_train(facts):
        return facts
    if spec.environment == "auto":
        with suppress(HostError):
            other = await backend.facts("python3")
            if _can_train(other):
                return other
    raise HostError(
        "ENVIRONMENT_UNUSABLE",
        f"{facts.python_path} on {spec.host} is Python {facts.python_version} "
        f"{'with' if facts.torch else 'without'} PyTorch; the training needs it and 3.10 or newer.",
        "Install it there (`pip install torch`), or set `environment: {python: PATH}` to an "
        "interpreter that has it.",
        field="environment",
    )


def _can_train(facts: HostFacts) -> bool:
    version = tuple(int(part) for part in facts.python_version.split(".")[:2])
    return facts.torch is not None and version >= _OLDEST_PYTHON


def given_python(spec: TrainingSpec) -> str | None:
    """The interpreter that the spec names; None where the host's own is to do."""
    return spec.environment.python if isinstance(spec.environment, EnvironmentSpec) else None


def look_at_data(spec: TrainingSpec) -> CorpusFacts:
    """The files of every source, as they are now."""
    sources, problems = [], {}
    for source in spec.data.sources:
        name = source.name or Path(source.path).name
        files: tuple[corpus.CorpusFile, ...] = ()
        try:
            files = corpus.list_files(Path(source.path))
        except FileNotFoundError:
            problems[name] = "there is nothing at this path"
        except OSError as error:
            problems[name] = f"it can't be read ({error.strerror})"
        sources.append(corpus.Source(name, source.path, files))
    return CorpusFacts.of(sources, spec.data.tokenizer, spec.data.seq_len, problems)


def answer(planned: Planned) -> PlanAnswer:
    """The plan as it is shown."""
    made = planned.plan
    return PlanAnswer(
        name=planned.spec.name,
        host=planned.spec.host,
        decisions=[PlanDecision(**item.model_dump()) for item in planned.decisions],
        estimates=made.estimates.model_dump(mode="json", exclude_none=True),
        gpu=made.gpu.model_dump(mode="json"),
        warnings=list(made.warnings),
        next_step="Launch it: `trainmaster launch` with the same arguments.",
    )


def refuse_unlaunchable(planned: Planned) -> None:
    """Raises:
    SpecError: `INVALID_VALUE`, the plan is for a GPU that the host does not have.
    """
    if not planned.plan.launchable:
        raise SpecError(
            "GPU_NOT_FOUND",
            f"The plan is for {planned.plan.gpu.planned}, which {planned.spec.host} doesn't have.",
            "Set compute.gpu to null for what the host has, or choose another host.",
            field="compute.gpu",
        )

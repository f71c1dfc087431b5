"""A plan with the facts it was made from, which plan a changed spec again. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from trainmaster.errors.errors import PlanError, SpecError
from trainmaster.plan.corpus_facts import CorpusFacts
from trainmaster.plan.decide import plan
from trainmaster.plan.facts import Calibration, CodeFacts, HostFacts, ModelFacts, TokenizerFacts
from trainmaster.plan.program import plan_program
from trainmaster.plan.result import Decision, Plan
from trainmaster.plan.spec import TrainingSpec, load_spec, refuse_other_files

# Of a program, whose data is its own.
NO_CORPUS = CorpusFacts(sources=(), fingerprint="")


class Allowed(Protocol):
    """The answer of the caller's policy."""

    def refuse_changed(self, attached: Mapping[str, str] | None = None) -> None:
        """Refuse code that is not what was allowed. `attached`: texts read since, by field."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with all its inputs, so that a changed spec can be planned from them again.

    `attached`: files of this machine that travel with the run, by their names in its folder.
    `allowed`: what the caller's policy was asked about the spec, as it was then; None for one that
    is planned from what is on record. `rehearsal`: what is to be kept of the training that this is
    a rehearsal of.
    """

    spec: TrainingSpec
    facts: HostFacts
    corpus: CorpusFacts
    calibration: Calibration
    plan: Plan
    attached: Mapping[str, str]
    model: ModelFacts | None = None
    tokenizer: TokenizerFacts | None = None
    allowed: Allowed | None = None
    code: CodeFacts | None = None
    rehearsal: Mapping[str, Any] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config but for the run's id."""
        return self.plan.config

    @property
    def decisions(self) -> list[Decision]:
        """The plan's decisions, with the reasons."""
        return list(self.plan.decisions)

    @property
    def spec_text(self) -> str:
        """The spec as JSON, which is YAML too, with absolute paths."""
        return json.dumps(self.spec.model_dump(mode="json", exclude_unset=True), indent=1)

    def to_dict(self) -> dict[str, Any]:
        """The input of `plan_again` besides the spec, and the plan that was shown."""
        return {
            "facts": self.facts.model_dump(mode="json"),
            "corpus": self.corpus.model_dump(mode="json"),
            "calibration": self.calibration.model_dump(mode="json"),
            "model": self.model.model_dump(mode="json") if self.model else None,
            "tokenizer": self.tokenizer.model_dump(mode="json") if self.tokenizer else None,
            "code": self.code.model_dump(mode="json") if self.code else None,
            "decisions": [decision.model_dump(mode="json") for decision in self.decisions],
            "attached": dict(self.attached),
            "warnings": list(self.plan.warnings),
            "requirements": list(self.plan.requirements),
            **({} if self.rehearsal is None else {"rehearsal": dict(self.rehearsal)}),
        }


def with_notes(
    planned: Planned, *, decisions: Sequence[Decision] = (), warnings: Sequence[str] = ()
) -> Planned:
    """The same plan with what was found out since."""
    made = planned.plan
    more = {
        "decisions": (*made.decisions, *decisions),
        "warnings": (*made.warnings, *warnings),
    }
    return replace(planned, plan=made.model_copy(update=more))


def plan_again(spec: str, sets: Sequence[str], made: Mapping[str, Any]) -> Planned:
    """The plan of a changed spec from the facts of its first plan: only what was changed differs.

    `made` is what `Planned.to_dict` gave.
    """
    loaded = load_spec(f"{spec}\n", sets)
    refuse_other_files(load_spec(f"{spec}\n"), loaded)
    facts = HostFacts.model_validate(made["facts"])
    if made.get("code"):
        code = CodeFacts.model_validate(made["code"])
        again = plan_program(loaded, facts, code)
        attached = made.get("attached", {})
        return Planned(loaded, facts, NO_CORPUS, Calibration(), again, attached, code=code)
    listed = CorpusFacts.model_validate(made["corpus"])
    calibration = Calibration.model_validate(made["calibration"])
    model = ModelFacts.model_validate(made["model"]) if made.get("model") else None
    tokenizer = TokenizerFacts.model_validate(made["tokenizer"]) if made.get("tokenizer") else None
    again = plan(loaded, facts, listed, calibration, model, tokenizer)
    attached = made.get("attached", {})
    return Planned(loaded, facts, listed, calibration, again, attached, model, tokenizer)


def refuse_unlaunchable(planned: Planned) -> None:
    """Raises:
    SpecError: `GPU_NOT_FOUND`, the plan is for a GPU that the host does not have.
    PlanError: `MODEL_UNUSABLE`, there are no weights to tune.
    """
    if planned.plan.missing:
        raise PlanError(
            "MODEL_UNUSABLE",
            planned.plan.missing[0],
            "Name a model with weights by model.hub or model.path.",
            field="model.path" if planned.spec.model.path else "model",
        )
    if not planned.plan.launchable:
        raise SpecError(
            "GPU_NOT_FOUND",
            f"The plan is for {planned.plan.gpu.planned}, which {planned.spec.host} doesn't have.",
            "Set compute.gpu to null for what the host has, or choose another host.",
            field="compute.gpu",
        )

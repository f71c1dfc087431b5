"""Checks `model.preset` against the table of published models, and what each framework builds."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.frameworks import FRAMEWORKS, framework_of
from trainmaster.plan.named_models import NamedModel, find_model, nearest_models

_FIELD = "model.preset"


def preset_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """What is wrong with a published model's name for the spec's framework."""
    name, framework = spec.model.preset, framework_of(spec)
    if name is None or name in framework.own_names:
        return
    model = find_model(name)
    if model is None:
        yield _unknown(name)
    elif not spec.lacks_weights and not framework.builds(model):
        yield Problem(
            "NOT_YET_SUPPORTED",
            _FIELD,
            f"`{_FIELD}` is {name!r}, which {spec.framework} has no model for.",
            f"Set framework to {_able(model)}, or `{_FIELD}` to another model.",
        )
    elif spec.model.dropout and not model.is_gpt2 and not framework.is_single_process:
        yield wrong_value(
            "model.dropout",
            f"is given beside `{_FIELD}` {name}, whose architecture sets it.",
            "Remove it.",
        )


def _unknown(name: str) -> Problem:
    having = [record.name for record in FRAMEWORKS.values() if name in record.own_names]
    if having:
        why, fix = f"a model of {having[0]} alone.", f"Set framework to {having[0]}"
    else:
        close = ", ".join(nearest_models(name))
        why = "which is not known here" + (f". Did you mean {close}?" if close else ".")
        fix = "Take a name that docs/models.md lists"
    sizes = "or give the model's sizes (n_layer, n_head, d_model)."
    return wrong_value(_FIELD, f"is {name!r}, {why}", f"{fix}, {sizes}")


def _able(model: NamedModel) -> str:
    able = [
        record.name
        for record in FRAMEWORKS.values()
        if not record.runs_program and record.usual_method == "pretrain" and record.builds(model)
    ]
    return " or ".join(able)

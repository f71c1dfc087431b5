"""From a raw document to a TrainingSpec, or to every problem that it has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainer_runtime.core.config.objectives import CAUSAL, OBJECTIVES
from trainer_runtime.core.protocol.command import option
from trainmaster.errors.errors import Problem, SpecError
from trainmaster.plan.fields.annotations import Section
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.field_tree import accepted, bare, field_type, members, nearest
from trainmaster.plan.fields.model import ModelSpec
from trainmaster.plan.frameworks import FRAMEWORKS
from trainmaster.plan.spec import checks
from trainmaster.plan.spec.model_checks import model_problems

_LENGTHS = ("steps", "tokens", "phases")
_SHOWN_CHARACTERS = 120
# As `host: [gpu1, gpu2]` is read.
_OTHER_HOST = re.compile(r"^other_hosts\[([0-9]+)\]")


def validate(document: Any) -> TrainingSpec:
    """The spec that a loaded YAML document stands for; paths and names as they were written.

    Raises:
        SpecError: listing everything that is wrong.
    """
    if not isinstance(document, Mapping):
        kind = "nothing" if document is None else f"a {_kind(document)}"
        raise SpecError(
            "WRONG_TYPE",
            f"The spec must be a mapping; it holds {kind}.",
            "Give at least name, framework, model, data and one of steps, tokens, phases.",
        )
    missing = _missing(document)
    problems = [*missing, *_length_problems(document)]
    try:
        spec = TrainingSpec.model_validate(dict(document))
    except ValidationError as error:
        problems = [*_problems(error), *problems, *_model_problems(document)]
        raise SpecError.listing(problems) from None
    if missing:
        raise SpecError.listing(problems)
    problems += checks.problems(spec)
    if problems:
        raise SpecError.listing(problems)
    return spec


def _length_problems(document: Mapping[str, Any]) -> list[Problem]:
    if _runs_program(document):
        return []  # a program ends by itself
    lengths = [name for name in _LENGTHS if document.get(name) is not None]
    arguments = document.get("method_args")
    if isinstance(arguments, Mapping) and arguments.get("epochs") is not None:
        lengths.append("method_args.epochs")
    if len(lengths) == 1 or ("phases" in lengths and "method_args.epochs" not in lengths):
        return []  # whether what stands beside phases agrees, their own checks see
    if not lengths:
        return [
            Problem(
                "MISSING_FIELD",
                "steps",
                "The spec does not say how long to train: none of `steps`, `tokens` and `phases` "
                "is given.",
                "Give exactly one of them, for example steps: 200.",
            )
        ]
    listed = " and ".join(f"`{name}`" for name in lengths)
    return [
        Problem(
            "INVALID_VALUE",
            lengths[1],
            f"The spec gives more than one length: {listed}.",
            f"Keep one of them; to drop one: {option('--set', f'{lengths[1]}=null')}.",
        )
    ]


def _runs_program(document: Mapping[str, Any]) -> bool:
    name = document.get("framework")
    return any(record.runs_program for record in FRAMEWORKS.values() if record.name == name)


def _missing(document: Mapping[str, Any]) -> list[Problem]:
    """The sections that the document's framework needs and that it lacks."""
    if _runs_program(document):
        return [] if document.get("script") is not None else [_missing_field("script")]
    return [_missing_field(name) for name in ("model", "data") if name not in document]


def _missing_field(name: str) -> Problem:
    takes = accepted(field_type(TrainingSpec.model_fields[name]))
    return Problem("MISSING_FIELD", name, f"`{name}` is missing.", f"Give `{name}`: {takes}.")


def _model_problems(document: Mapping[str, Any]) -> list[Problem]:
    """Problems within the model, which are reported even if another section is invalid."""
    try:
        objective = document.get("objective")
        valid = objective if isinstance(objective, str) and objective in OBJECTIVES else CAUSAL
        return list(model_problems(ModelSpec.model_validate(document.get("model")), valid))
    except ValidationError:
        return []


def _problems(error: ValidationError) -> list[Problem]:
    """One problem a field: pydantic reports each alternative of a union by itself."""
    by_path: dict[str, list[tuple[ErrorDetails, Any]]] = {}
    for details in error.errors(include_url=False):
        path, annotation = _locate(details["loc"])
        path = _OTHER_HOST.sub(lambda errors_there: f"host[{int(errors_there[1]) + 1}]", path)
        by_path.setdefault(path, []).append((details, annotation))
    # A complaint about a whole is noise beside the one about its part.
    parents = {path for path in by_path for other in by_path if _is_inside(other, path)}
    return [
        _problem(path, errors_there)
        for path, errors_there in by_path.items()
        if path not in parents
    ]


def _is_inside(path: str, other: str) -> bool:
    return path.startswith((f"{other}.", f"{other}["))


def _locate(location: Sequence[int | str]) -> tuple[str, Any]:
    """The spec's path for a pydantic location, which also names the alternatives it tried."""
    path = ""
    alternatives: tuple[Any, ...] = (TrainingSpec,)
    whole: Any = TrainingSpec
    for part in location:
        if len([kind for kind in alternatives if bare(kind) is not type(None)]) > 1:
            chosen = tuple(kind for kind in alternatives if _is_tag(part, bare(kind)))
            if chosen:
                alternatives = chosen
                continue
        step = _descend(alternatives, part)
        if step is None:
            # An unknown key, or a word of pydantic's own such as the one for a mapping's key.
            if isinstance(part, str) and part != "[key]" and not _is_function(part):
                path, whole = _joined(path, part), None
            break
        whole = step
        path = _joined(path, part)
        alternatives = members(step)
    return path, whole


def _is_tag(part: int | str, kind: Any) -> bool:
    """Whether a location's part names one of a union's alternatives rather than a key."""
    if not isinstance(part, str):
        return False
    name = getattr(get_origin(kind) or kind, "__name__", "")
    return part.split("[")[0].lower() == name.lower() or _is_function(part)


def _is_function(part: str) -> bool:
    return part.startswith(("function-", "constrained-", "literal[", "lax-or-strict"))


def _descend(alternatives: Sequence[Any], part: int | str) -> Any | None:
    for alternative in alternatives:
        kind = bare(alternative)
        if isinstance(kind, type) and issubclass(kind, Section):
            info = kind.model_fields.get(str(part))
            if info is not None:
                return field_type(info)
        elif get_origin(kind) is list and isinstance(part, int):
            return get_args(kind)[0]
        elif get_origin(kind) is dict and part != "[key]":
            return get_args(kind)[1]
    return None


def _joined(path: str, part: int | str) -> str:
    if isinstance(part, int):
        return f"{path}[{part}]"
    return f"{path}.{part}" if path else part


def _problem(path: str, errors: Sequence[tuple[ErrorDetails, Any]]) -> Problem:
    details, annotation = errors[0]
    kinds = {item["type"] for item, _ in errors}
    if "extra_forbidden" in kinds and annotation is None:
        parent, _, name = path.rpartition(".")
        return unknown_key(parent, name, _siblings(details["loc"]))
    if "missing" in kinds:
        return Problem(
            "MISSING_FIELD",
            path,
            f"`{path}` is missing.",
            f"Give `{path}`: {accepted(annotation)}.",
        )
    code = "WRONG_TYPE" if all(_is_type_error(item) for item, _ in errors) else "INVALID_VALUE"
    value = details["input"]
    kind = "" if code == "INVALID_VALUE" or value is None else f"the {_kind(value)} "
    words = accepted(annotation) if annotation is not None else details["msg"]
    return Problem(code, path, f"`{path}` is {kind}{shown(value)}.", f"`{path}` takes {words}.")


def unknown_key(parent: str, name: str, keys: Sequence[str]) -> Problem:
    """The problem of a key that `parent` does not have, with the one that was probably meant."""
    path = f"{parent}{name}" if name.startswith("[") else f"{parent}.{name}".lstrip(".")
    meant = nearest(name, list(keys))
    where = f"`{parent}`" if parent else "The spec"
    guess = f" Did you mean `{meant}`?" if meant else ""
    return Problem(
        "UNKNOWN_KEY",
        path,
        f"`{path}` is not a key of the spec.{guess}",
        f"{where} takes {', '.join(keys)}.",
    )


def _siblings(location: Sequence[int | str]) -> list[str]:
    alternatives: tuple[Any, ...] = (TrainingSpec,)
    for part in location[:-1]:
        step = _descend(alternatives, part)
        if step is not None:
            alternatives = members(step)
    names: list[str] = []
    for alternative in alternatives:
        kind = bare(alternative)
        if isinstance(kind, type) and issubclass(kind, Section):
            names += kind.model_fields
    return names


def _is_type_error(details: ErrorDetails) -> bool:
    if details["type"] == "literal_error":
        # A word where other words are accepted is a wrong value; a number there is a wrong type.
        return not isinstance(details["input"], str)
    return details["type"].endswith("_type") or details["type"] == "int_from_float"


def _kind(value: Any) -> str:
    names = {
        bool: "boolean",
        int: "whole number",
        float: "number",
        str: "text",
        dict: "mapping",
        list: "list",
    }
    return names.get(type(value), type(value).__name__)


def shown(value: Any) -> str:
    """A value as YAML would nearly write it, short enough for a sentence."""
    if value is None:
        return "null"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"

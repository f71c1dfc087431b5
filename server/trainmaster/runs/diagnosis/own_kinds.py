"""Kinds of failures that the user adds: `kinds.yaml` in the home, rows like the catalogue's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from trainer_runtime.core.diagnosis.kinds import Kind, Wording
from trainer_runtime.core.diagnosis.parse.expression_cost import why_unbounded
from trainer_runtime.core.diagnosis.signatures import find_in
from trainer_runtime.core.diagnosis.signatures.explain import EXPLANATIONS
from trainer_runtime.core.diagnosis.signatures.keywords import keywords_of
from trainmaster.errors.errors import SpecError, UsageError

MOST_ROWS = 200
_LARGEST_BYTES = 1 << 20
_FIELDS = "code, says, advice and when, perhaps unless, after, example, confidence and severity"


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError) as error:
        raise ValueError(f"is not a regular expression ({error})") from None
    if (reason := why_unbounded(text)) is not None:
        raise ValueError(f"may take without bound: it {reason}")
    return text


def _searched(text: str) -> str:
    keywords_of(_expression(text))
    return text


def _new_code(code: str) -> str:
    if code in EXPLANATIONS:
        raise ValueError("is a code of the catalogue; choose another")
    return code


_Text = Annotated[str, Field(min_length=1, max_length=400)]
_Pattern = Annotated[_Text, AfterValidator(_expression)]


class _Row(BaseModel):
    """A row as a person writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{1,40}$"), AfterValidator(_new_code)]
    says: _Text
    advice: Annotated[list[_Text], Field(min_length=1, max_length=6)]
    when: Annotated[_Text, AfterValidator(_searched)]
    unless: _Pattern | None = None
    after: _Pattern | None = None
    example: Annotated[str, Field(min_length=1, max_length=4000)]
    confidence: Annotated[float, Field(gt=0, le=1)] = 0.8
    severity: Literal["info", "warning", "critical"] = "critical"

    def kind(self) -> Kind:
        wording = Wording(self.when, self.example, "own", unless=self.unless, after=self.after)
        advice = tuple(self.advice)
        return Kind(self.code, self.says, advice, (wording,), self.confidence, self.severity)


def own_kinds(path: Path | None) -> tuple[Kind, ...]:
    """The rows of a file; none without a file.

    Raises:
        UsageError: `KIND_INVALID`, with the row and the field.
    """
    if path is None or not path.is_file():
        return ()
    kinds: dict[str, Kind] = {}
    for number, row in enumerate(_rows(path), 1):
        kind = _kind(path, number, row)
        if kind.code in kinds:
            raise _invalid(path, number, f"{kind.code} is there already")
        kinds[kind.code] = kind
    return tuple(kinds.values())


def _rows(path: Path) -> Iterator[Any]:
    from trainmaster.settings.yaml12 import load_yaml  # heavy, and most homes have no such file

    try:
        with path.open("rb") as file:
            document = load_yaml(file.read(_LARGEST_BYTES).decode())
    except (OSError, ValueError) as error:
        raise _invalid(path, None, f"can't be read: {error}") from error
    except SpecError as error:
        raise _invalid(path, None, f"can't be read: {error.message}") from error
    if not isinstance(document, list) or len(document) > MOST_ROWS:
        raise _invalid(path, None, f"is not a list of at most {MOST_ROWS} rows")
    yield from document


def _kind(path: Path, number: int, row: Any) -> Kind:
    try:
        kind = _Row.model_validate(row).kind()
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "the row"
        raise _invalid(path, number, f"{place}: {problem['msg']}") from error
    findings = find_in([f"{kind.wordings[0].example}\n".encode()], own=(kind,))
    if kind.code not in (finding.code for finding in findings):
        raise _invalid(path, number, "example: `when` does not find it, or takes it for a quote")
    return kind


def _invalid(path: Path, number: int | None, why: str) -> UsageError:
    where = str(path) if number is None else f"{path}, row {number}"
    return UsageError(
        "KIND_INVALID",
        f"{where}: {why}.",
        f"A row has {_FIELDS}; docs/diagnosis.md explains them. Correct the file, or move it away.",
    )

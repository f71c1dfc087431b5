"""The fields that a framework takes, a line each: for the writing of a spec."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticUndefined

from trainer_runtime.core.frameworks import FrameworkName
from trainmaster.plan.fields.annotations import NAME_ACCEPTED
from trainmaster.plan.fields.field_tree import Field, all_fields, field_type, section_in
from trainmaster.plan.frameworks import FRAMEWORKS

# Left out of the one screen that a lookup answers first: what few specs change.
_SELDOM = re.compile(
    r"(?:recovery|compute|environment|limits|alerts\[\]|phases\[\]|batch\.ramp|data\.validation\[\])"
    r"\.(?!gpu|nodes|strategy)"
    r"|optimizer\.(?:clip|decay|eps|momentum|z_loss|label_smoothing|focal_gamma|groups.*)$"
    r"|schedule\.(?:power|cycles|warmup)$|checkpoint\.ema$|eval\.early_stopping\."
    r"|data\.(?:workers|filters\.\w+|sources\[\]\.license|tokenizer\.\w+)$"
    r"|model\.(?:rope_|attention|extend_vocab|window|norm|value_|ngram_)"
    r"|(?:spec_version|other_hosts|labels|pty|env|secrets|phases|compute\.gpu_memory_gib)$"
)
_LONGEST_MEANING = 90
_WORDS = (
    (re.compile(re.escape(NAME_ACCEPTED)), "name"),
    (re.compile(r" and <= [\de]+(?:,\d{3})*"), ""),
    (re.compile(r"a whole number(?: >= [01])?"), "integer"),
    (re.compile(r"a text(?: \(quote[^)]*\)| of at most [\d,]+ characters)?"), "text"),
    (re.compile(r"a (number|path|mapping|list|duration|size)"), r"\1"),
    (re.compile(r" such as [^,]*(?:, \w+)*(?: or \w+)?"), ""),
    (re.compile(r" or null$"), ""),
)


def framework_asked_about(spec: str) -> FrameworkName | None:
    """The framework, where a spec says nothing else: `hf`, or `framework: hf`."""
    word = re.sub(r"\A\s*framework\s*:", "", spec).strip().strip("\"'")
    return next((record.name for record in FRAMEWORKS.values() if record.name == word), None)


def field_lines(framework: FrameworkName, *, everything: bool = False) -> list[str]:
    """`path: type = default; meaning`, in the order of the spec, without what few specs change
    unless `everything` is asked for."""
    return [*_lines(framework, everything), *_of_methods(framework)]


def _lines(framework: FrameworkName, everything: bool) -> Iterator[str]:
    for field in all_fields():
        place = FRAMEWORKS[framework].place_of(field)
        is_section = section_in(field_type(field.info)) is not None
        if place.where and not is_section and (everything or not _SELDOM.match(field.path)):
            takes = place.words if isinstance(place.takes, tuple) else _plain(field.accepts)
            yield f"{field.path}: {takes}{_default(field)}; {_meaning(field)}"


def _of_methods(framework: FrameworkName) -> Iterator[str]:
    for method, arguments in FRAMEWORKS[framework].arguments.items():
        yield f"method_args for {method}: {', '.join(arguments)}"


def _plain(accepts: str) -> str:
    for pattern, word in _WORDS:
        accepts = pattern.sub(word, accepts)
    return accepts


def _default(field: Field) -> str:
    value: Any = field.default
    if field.info.is_required() or value is PydanticUndefined:
        return ", required"
    if value is None:
        return ""
    return f" = {str(value).lower() if isinstance(value, bool) else value}"


def _meaning(field: Field) -> str:
    first = (field.info.description or "").partition(". ")[0].rstrip(".")
    if len(first) <= _LONGEST_MEANING:
        return first
    return f"{first[:_LONGEST_MEANING].rpartition(' ')[0]} …"

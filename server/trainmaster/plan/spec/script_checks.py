"""Checks the program of a spec: its words, its pattern, and what it continues from."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from trainer_runtime.core.config.script import PLACEHOLDERS
from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.data import SourceSpec
from trainmaster.plan.fields.field_tree import nearest
from trainmaster.plan.fields.script import SavesSpec, ScriptSpec

_NAMED = re.compile(r"\{(?:checkpoint|step)\}")
_DATA = re.compile(r"\{data(?:\.[\w.-]+)?\}")
# `${name}` is a shell's, and `{{name}}` stands for `{name}` itself.
_BRACED = re.compile(r"(?<![${])\{([A-Za-z_]\w*)\}(?!\})")
_LONGEST_PATTERN = 500


def script_problems(script: ScriptSpec) -> Iterator[Problem]:
    """Everything that is wrong with a program which is sound by its types."""
    if not script.command or not script.command[0].strip():
        yield _wrong("command", "is empty.", "Give the program and its arguments as a list.")
    yield from _placeholder_problems("command", script.command)
    yield from _checkpoint_problems(script.command)
    yield from _placeholder_problems("resume", script.resume or ())
    yield from _path_problems(script)
    if script.checkpoints is not None:
        yield from _saves_problems(script.checkpoints)
    yield from _resume_problems(script)
    if script.final is not None:
        yield from _within("final", script.final)
    if script.pattern is not None:
        yield from _pattern_problems(script.pattern)


def _pattern_problems(pattern: str) -> Iterator[Problem]:
    # Most specs have none, and with it comes the whole parser.
    from trainer_runtime.core.diagnosis.parse.pattern import PatternError, patterns_of

    try:
        patterns_of(pattern)
    except PatternError as error:
        code = "PATTERN_TOO_SLOW" if error.is_slow else "PATTERN_INVALID"
        fix = error.fix if error.fix.endswith(".") else f"{error.fix}."
        yield Problem(code, "script.pattern", f"`script.pattern` {error}.", fix)


def _placeholder_problems(field: str, words: Sequence[str]) -> Iterator[Problem]:
    for index, word in enumerate(words):
        for name in _BRACED.findall(word):
            if name in PLACEHOLDERS or name == "data":
                continue
            placeholders = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            meant = nearest(name, list(PLACEHOLDERS))
            guess = f"Did you mean {{{meant}}}? " if meant else ""
            yield _wrong(
                f"{field}[{index}]",
                f"names {{{name}}}, which stands for nothing.",
                f"{guess}Known are {placeholders}, {{data}} and {{data.NAME}}; {{{{{name}}}}} "
                f"passes {{{name}}} itself.",
            )


def _checkpoint_problems(command: Sequence[str]) -> Iterator[Problem]:
    for index, word in enumerate(command):
        if "checkpoint" in _BRACED.findall(word):
            yield _wrong(
                f"command[{index}]",
                "names {checkpoint}, and at the first start there is none.",
                "Put these words into script.resume, which are appended to continue; or let the "
                "program read $TRAINMASTER_CHECKPOINT, and `script.resume: []`.",
            )


def data_problems(script: ScriptSpec, sources: Sequence[SourceSpec]) -> Iterator[Problem]:
    """Problems between what the command names and what `data` gives."""
    named = set(_DATA.findall(" ".join([*script.command, *(script.resume or ())])))
    by_placeholder = {f"{{data.{source.name}}}": source for source in sources}
    if len(sources) == 1:
        by_placeholder["{data}"] = sources[0]
    for words in sorted(named - by_placeholder.keys()):
        listed = " or ".join(by_placeholder) or "none: `data.sources` gives nothing"
        yield _wrong("command", f"names {words}, which is not there.", f"Known is {listed}.")
    for index, source in enumerate(sources):
        if source.path.startswith(STORES):
            yield wrong_value(
                f"data.sources[{index}].path",
                f"is {source.path!r}, which is not fetched for a program.",
                "Have the program read it by itself, with the keys under secrets.",
            )
    used = [by_placeholder[words] for words in named & by_placeholder.keys()]
    for index, source in enumerate(sources):
        if source not in used:
            yield Problem(
                "INVALID_VALUE",
                f"data.sources[{index}]",
                f"`data.sources[{index}]` would travel, but the command does not name it.",
                f"Put {{data.{source.name}}} where the program takes its path.",
            )


def _path_problems(script: ScriptSpec) -> Iterator[Problem]:
    if not script.path.startswith(ON_BOX):
        return
    path = script.path.removeprefix(ON_BOX)
    if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
        yield _wrong(
            "path",
            f"is {script.path!r}, which is not a plain absolute path of the host.",
            "Give it as host:/folder, without `..` or a slash at its end.",
        )


def _saves_problems(saves: SavesSpec) -> Iterator[Problem]:
    yield from _within("checkpoints.path", saves.path)
    if saves.step is None:
        return
    try:
        groups = re.compile(saves.step).groups if len(saves.step) <= _LONGEST_PATTERN else 0
    except re.error:
        groups = 0
    if groups < 1:
        yield _wrong(
            "checkpoints.step",
            f"is {saves.step[:80]!r}, which is not a regular expression with a group for the step.",
            'Write for example "ckpt_(\\\\d+)".',
        )


def _resume_problems(script: ScriptSpec) -> Iterator[Problem]:
    if script.resume is None:
        return
    if script.checkpoints is None:
        yield _wrong(
            "resume",
            "is given, but no checkpoints are.",
            "Say by script.checkpoints.path what the program saves.",
        )
        return
    is_one_file = not any(letter in script.checkpoints.path for letter in "*?[")
    if script.resume and not is_one_file and not _NAMED.search(" ".join(script.resume)):
        yield _wrong(
            "resume",
            "names neither {checkpoint} nor {step}, and the pattern may match several: the program "
            "would choose by itself, also one that is torn.",
            "Put {checkpoint} where the program takes its path; or [] if it reads "
            "$TRAINMASTER_CHECKPOINT.",
        )


def _within(field: str, path: str) -> Iterator[Problem]:
    if path.startswith(("/", "~")) or ".." in path.split("/") or path in (".", "*", "**"):
        yield _wrong(
            field,
            f"is {path!r}, which does not lie inside the program's folder.",
            "Give it as seen from script.path, without `..`.",
        )


def _wrong(field: str, what: str, fix: str) -> Problem:
    return wrong_value(f"script.{field}", what, fix)

"""Inspects data before any plan: that of a spec, or what lies at a path of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.inputs.hub_dataset import DatasetAddress
from trainer_runtime.core.inputs.row_form import rows_of
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.text import cleaned
from trainmaster.answers.data_inspection import DataInspection, InspectedSource
from trainmaster.answers.runs import PlanAnswer
from trainmaster.backends import HERE
from trainmaster.calls.stages import enter_stage
from trainmaster.calls.work import remedied
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import PlanError, UsageError
from trainmaster.home.user_paths import user_path
from trainmaster.plan.frameworks import method_of
from trainmaster.plan.spec import TrainingSpec, ValidationSpec
from trainmaster.plan.spec.load import spec_path
from trainmaster.runs.data.inspect_hub import inspect_hub
from trainmaster.runs.data.inspect_source import YES, Declared, Subject, inspect_source
from trainmaster.runs.planning.model_hub import Hub, hub_of, is_offline
from trainmaster.runs.planning.spec_policy import load_allowed_spec, refuse_private_inputs
from trainmaster.store.secret_values import HF_TOKEN
from trainmaster.sync.workspace import Workspace

_SPEC_ENDINGS = (".yaml", ".yml")
_ADDRESS = re.compile(r"[a-z][a-z0-9+]*://", re.IGNORECASE)
_ON_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*:/")
_ALONE = re.compile(r"\s*data[ \t]*:[ \t]*([^\s{\[\"'][^\n{]*|\"[^\n\"]+\"|'[^\n']+')\s*")
_SMALLER = "Name one file or subfolder of it, or inspect it in a shell, which has no limit."
_COPY = (
    "Copy a sample of it to this machine and inspect that, or run "
    f"{command('data', 'inspect', 'PATH')} there."
)
# Of an answer to an agent.
_BRIEF_EXAMPLE, _BRIEF_PROBLEM, _BRIEF_ENTRIES = 80, 120, 8


@dataclass(frozen=True, slots=True)
class _OnHub:
    """A source that is a data set of a hub."""

    subject: Subject
    address: DatasetAddress
    hub: Hub


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """A source that is not on this machine, and why that keeps it from being read."""

    subject: Subject
    problem: str


_Asked = Subject | _OnHub | _Elsewhere


async def inspect_data(workspace: Workspace, named: str) -> DataInspection:
    """What the sources and validation files of a spec hold, or what lies at a path or is a data
    set of a hub.

    Reads at most some 64 MiB of each source. Files on other machines are not read.

    Raises:
        UsageError: `NOT_YET_SUPPORTED`, an address of a bucket; `BAD_ARGUMENT`, a path that
            can't be one, or of another machine.
        PlanError: `DATA_MISSING`, nothing is there, or it can't be read; `HUB_NOT_FOUND`,
            `HUB_GATED`, `HUB_UNREACHABLE`.
        PolicyError: `POLICY_FILE`, `POLICY_ENDPOINT`, the caller may not read it.
        SpecError: the spec can't be read; `UNSAFE_NAME`, it names secrets.
    """
    with remedied(_SMALLER):
        if is_spec(named):
            spec = load_allowed_spec(workspace, named, ())
            refuse_private_inputs(workspace.home, spec)
            subjects = [_allowed(workspace, one) for one in _of_spec(workspace, spec)]
            enter_stage("reading the data")
            sources = [await _inspected(one) for one in subjects]
            return DataInspection(sources=sources, next_step=_next_of_spec(named, sources))
        subject = _allowed(workspace, _named(workspace, named))
        enter_stage("reading the data")
        source = await _inspected(subject)
        if not source.files and source.untrusted_problems:
            raise _missing(named, source.untrusted_problems[0])
        return DataInspection(sources=[source], next_step=_next_of_path(source))


async def planned_data(workspace: Workspace, named: str) -> PlanAnswer:
    """The same in short, as the answer about a spec that says nothing but `data: PATH`.

    Raises:
        TrainmasterError: as `inspect_data`.
    """
    whole = await inspect_data(workspace, named)
    shown = _brief(whole).model_dump()
    next_step = shown.pop("next_step", None)
    return PlanAnswer(name="data", data=shown, next_step=next_step)


def data_asked_about(spec: str) -> str | None:
    """The path, where a spec says nothing but `data: PATH`."""
    alone = _ALONE.fullmatch(spec)
    return None if alone is None else alone[1].strip().strip("\"'")


def is_spec(named: str) -> bool:
    """Whether a spec is meant: YAML text, or a path that ends as YAML files do."""
    path = spec_path(named)
    return path is None or path.suffix.lower() in _SPEC_ENDINGS


def _brief(inspection: DataInspection) -> DataInspection:
    sources = [_brief_source(one) for one in inspection.sources]
    return inspection.model_copy(update={"sources": sources})


def _brief_source(source: InspectedSource) -> InspectedSource:
    """What an agent needs of it to choose a format, a method, or what to correct."""
    fields, methods = source.untrusted_fields, source.methods
    if fields is not None:
        columns = {name: getattr(fields, name)[:_BRIEF_ENTRIES] for name in fields.model_fields}
        fields = fields.model_copy(update=columns)
    if methods is not None:
        methods = {name: found if found == YES else "no" for name, found in methods.items()}
    return source.model_copy(
        update={
            "untrusted_fields": fields,
            "untrusted_examples": _first(source.untrusted_examples, 3, _BRIEF_EXAMPLE),
            "untrusted_problems": _first(source.untrusted_problems, 2, _BRIEF_PROBLEM),
            "methods": methods,
            "sampled_bytes": None,
            "notes": None if source.files else source.notes,
        }
    )


def _first(texts: list[str] | None, most: int, longest: int) -> list[str] | None:
    return None if texts is None else [cleaned(text, longest) for text in texts[:most]]


def _named(workspace: Workspace, named: str) -> Subject | _OnHub:
    address = DatasetAddress.find(named)
    if address is None:
        return Subject(_local_path(named), named)
    return _OnHub(Subject(Path(named), named), address, _hub(workspace, {}, "path"))


def _hub(workspace: Workspace, variables: Mapping[str, str], field: str) -> Hub:
    """The hub, with this machine's own token for its user, and without one for an agent.

    Raises:
        PolicyError: `POLICY_ENDPOINT`, the caller may not have the one of these variables asked.
    """
    policy = workspace.policy
    if own := variables.get("HF_ENDPOINT"):
        policy.check_endpoint(own, "env.HF_ENDPOINT")
    token = None if policy.bound else os.environ.get(HF_TOKEN)
    return hub_of(variables, os.environ, token, field, policy)


def _of_spec(workspace: Workspace, spec: TrainingSpec) -> Iterator[_Asked]:
    is_here = spec.host in HERE
    kind = rows_of(spec.framework, method_of(spec))
    for field, source in spec.data.inputs:
        path = source.path.removeprefix(ON_BOX) if is_here else source.path
        subject = Subject(
            Path(path),
            source.path,
            f"{field}.path",
            source.name,
            held_out=isinstance(source, ValidationSpec),
            declared=Declared(source.format, kind, "format" in source.model_fields_set),
            tokenizer=spec.data.tokenizer if isinstance(spec.data.tokenizer, str) else "",
        )
        if (address := DatasetAddress.find(path)) is not None and not is_offline(spec.env):
            yield _OnHub(subject, address, _hub(workspace, spec.env, subject.field))
        elif _ADDRESS.match(path):
            of_hub = address and "HF_HUB_OFFLINE is set"
            yield _Elsewhere(subject, of_hub or "addresses of buckets are not read yet")
        elif path.startswith(ON_BOX):
            yield _Elsewhere(subject, f"it lies on {spec.host}, and is read there by a plan")
        else:
            yield subject


def _allowed(workspace: Workspace, asked: _Asked) -> _Asked:
    """Raises: PolicyError: `POLICY_FILE`."""
    policy = workspace.policy
    if isinstance(asked, Subject):
        policy.check_readable(asked.path, asked.field)
    if not isinstance(asked, _Elsewhere):
        subject = asked if isinstance(asked, Subject) else asked.subject
        if subject.tokenizer.startswith("/"):
            policy.check_folder(subject.tokenizer, "data.tokenizer")
    return asked


async def _inspected(subject: _Asked) -> InspectedSource:
    if isinstance(subject, Subject):
        return await in_thread(inspect_source, subject)
    if isinstance(subject, _OnHub):
        return await inspect_hub(subject.hub, subject.address, subject.subject)
    source = subject.subject
    return InspectedSource(
        path=source.shown_path,
        name=source.name,
        held_out=source.held_out or None,
        notes=[f"Not inspected: {subject.problem}."],
    )


def _local_path(named: str) -> Path:
    """Raises: UsageError: it is an address, or a path of another machine, or none at all."""
    if _ADDRESS.match(named):
        raise UsageError(
            "NOT_YET_SUPPORTED",
            f"{named[:200]!r} is an address of no data set on the hub, the only ones that are "
            "inspected so far.",
            "Write hf://OWNER/NAME@REVISION#CONFIG:SPLIT, or download a file or two of it and "
            "inspect these.",
            field="path",
        )
    if _ON_HOST.match(named) and not Path(named).exists():
        raise UsageError(
            "BAD_ARGUMENT",
            f"{named[:200]!r} names a path of a host, and only files of this machine are "
            "inspected.",
            _COPY,
            field="path",
        )
    return user_path(named, "path")


def _missing(named: str, problem: str) -> PlanError:
    return PlanError(
        "DATA_MISSING",
        f"{named[:200]!r} can't be inspected: {problem}.",
        "Give the path of a file or folder that can be read, or of a spec that ends in .yaml.",
        field="path",
    )


def _next_of_spec(named: str, sources: list[InspectedSource]) -> str:
    if any(source.untrusted_problems for source in sources):
        return "Correct what stands under problems; a plan refuses it."
    shown = "SPEC" if spec_path(named) is None else named
    return f"{command('plan', shown)} checks the whole spec."


def _next_of_path(source: InspectedSource) -> str | None:
    methods = [method for method, found in (source.methods or {}).items() if found == YES]
    if source.format is None or not methods:
        return None
    return (
        f"In a spec: data.sources with this path and format: {source.format}; it can be trained on "
        f"by {', '.join(methods)}."
    )

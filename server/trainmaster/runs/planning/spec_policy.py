"""Holds a spec to its caller's policy, before anything that it names is read, asked or run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.inputs.hub_dataset import PREFIX as HUB
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainmaster.backends import HERE
from trainmaster.errors.confirmation import Confirm, Quote, digest_of_request
from trainmaster.errors.errors import PlanError, PolicyError, SpecError
from trainmaster.home.paths import Home
from trainmaster.plan.spec import EnvironmentSpec, TrainingSpec, load_spec
from trainmaster.plan.spec.load import spec_path
from trainmaster.runs.planning.trusted_code import (
    Code,
    changed_error,
    code_at,
    code_error,
    code_of,
    trust,
    untrusted_code,
)
from trainmaster.settings.spec_variables import is_free_text, names_server
from trainmaster.sync.workspace import Workspace

# Of these whole folders are sent, with what their links lead to.
_LINKS_FOLLOWED = ("model.path", "data.tokenizer", "environment.wheels")
_HUB = "HF_ENDPOINT"
_CODE_FIELDS = ("environment.", "method_args.", "script.")


@dataclass(frozen=True, slots=True)
class Beyond:
    """What of a spec is beyond its caller's policy, and the code that no person has trusted.

    `places`: the real paths of this machine that its fields led to when they were checked; `keys`:
    its code as it was then, trusted or not; `home`: whose keys are no code. All are empty for a
    caller without limits.
    """

    errors: Sequence[PolicyError] = ()
    code: Sequence[Code] = ()
    spec: TrainingSpec | None = None
    places: Mapping[str, str] = dataclasses.field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    home: Home | None = None

    def without(self, other: Beyond, places: Mapping[str, str]) -> Beyond:
        """What is not in `other`: of a run that is changed, whose fields led to `places` at its
        launch. A path that leads elsewhere by now stays, and so does code: its files may have
        changed, and what was trusted then is on record."""
        before = {error.message for error in other.errors}
        left = [
            error
            for error in self.errors
            if error.message not in before
            or places.get(error.field or "") != self.places.get(error.field or "")
        ]
        return replace(self, errors=left)

    def identity(self) -> list[object]:
        """The whole spec, where its paths lead, and its code: what an approval is given for."""
        if self.spec is None:
            return []
        return [self.spec.model_dump(mode="json"), dict(self.places), sorted(self.keys)]

    def refuse_changed(self, attached: Mapping[str, str] | None = None) -> None:
        """Refuse code that is not what was allowed. `attached`: the texts that were read since, by
        field.

        Raises:
            PolicyError: `POLICY_PROGRAM`.
        """
        if self.spec is None or self.home is None:
            return
        for code in _all_code(self.spec, attached or {}, self.home):
            if code.key not in self.keys:
                raise changed_error(code)


NOTHING_BEYOND = Beyond()


def load_allowed_spec(workspace: Workspace, spec: str, sets: Sequence[str]) -> TrainingSpec:
    """The spec at a path that the caller may read, or in YAML text, with `sets`.

    Raises:
        PolicyError: `POLICY_FILE`.
        SpecError: as `load_spec`.
    """
    path = spec_path(spec)
    real = None if path is None else workspace.policy.check_readable(path, "spec")
    return load_spec(spec, sets, real=real if workspace.policy.bound else None)


def beyond_policy(workspace: Workspace, spec: TrainingSpec, *, has_host: bool = True) -> Beyond:
    """What of a spec lies beyond its caller's policy; without `has_host` it is for a machine that
    is not chosen yet, of which nothing but paths and addresses can be checked.

    Raises:
        PlanError: the program's folder can't be known by digest.
    """
    if not workspace.policy.bound:
        return NOTHING_BEYOND
    errors = []
    for check in _checks(workspace, spec, has_host=has_host):
        try:
            check()
        except PolicyError as error:
            errors.append(error)
    code: Sequence[Code] = ()
    keys: frozenset[str] = frozenset()
    try:
        code = untrusted_code(workspace, spec) if has_host else ()
        keys = frozenset(item.key for item in _all_code(spec, {}, workspace.home))
    except PlanError:
        if not errors:  # else it is not said what lies there: `refuse_changed` raises this again
            raise
    return Beyond(errors, code, spec, places_of(spec), keys, workspace.home)


def places_of(spec: TrainingSpec) -> dict[str, str]:
    """By field of a spec that names a path of this machine, where that leads."""
    is_here = spec.host in HERE
    places = ((field, *_place_of(spec, path)) for field, path in _places(spec))
    return {field: _led_to(path) for field, path, is_hosts in places if is_here or not is_hosts}


async def allow(
    workspace: Workspace,
    beyond: Beyond,
    action: Literal["plan", "launch", "resume"],
    name: str,
    confirm: Confirm | None,
    *,
    besides: Sequence[str] = (),
    request: Sequence[object] = (),
) -> None:
    """Have a person allow what lies beyond the policy; code is trusted from then on.

    `name`: what the question is about; `besides`: what else to ask; `request`: what an approval is
    for, beside the spec. Without `confirm`, untrusted code and `besides` are left to the caller; a
    plan leaves code to the launch, as it runs none.

    Raises:
        PolicyError: no approval allows it, or there is nobody to ask.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    code = beyond.code if confirm is not None and action != "plan" else ()
    asked = [*beyond.errors, *(code_error(workspace, item) for item in code)]
    questions = [error.question for error in asked if error.question is not None]
    if confirm is None or len(questions) < len(asked):
        for error in sorted(asked, key=lambda error: error.question is not None):
            raise error
        return
    questions += besides
    if not questions:
        return
    text = f"{action.capitalize()} {name}, and allow the agent to {'; to '.join(questions)}."
    identity = digest_of_request(name, sorted(questions), beyond.identity(), list(request))
    by = await confirm(Quote(action, identity, text))
    for item in code:
        trust(workspace, item, by)


def _checks(
    workspace: Workspace, spec: TrainingSpec, *, has_host: bool
) -> Iterator[Callable[[], object]]:
    policy, is_here = workspace.policy, has_host and spec.host in HERE
    if has_host:
        for host in (spec.host, *spec.other_hosts):
            yield partial(policy.check_host, host, "host")
            record = workspace.control.host(host)
            is_agents = record is not None and record.by_agent
            for name in spec.secrets:
                yield partial(policy.check_secret, name, host, is_agents=is_agents)
    for field, path in _places(spec):
        there, is_hosts = _place_of(spec, path)
        if is_hosts and not is_here:
            yield partial(policy.check_on_host, there, field)
        elif field in _LINKS_FOLLOWED:
            yield partial(policy.check_folder, there, field)
        else:
            yield partial(policy.check_readable, there, field)
    for field, address in _buckets(spec):
        yield partial(policy.check_bucket, address, field)
    for field, url in _addresses(spec):
        is_hub = field == f"env.{_HUB}"
        yield partial(policy.check_endpoint, url, field, loopback=not is_hub)


def _all_code(spec: TrainingSpec, attached: Mapping[str, str], home: Home) -> Iterator[Code]:
    """What runs on this machine, and the programs that are sent to another one."""
    yield from code_of(spec, home) if spec.host in HERE else ()
    for field, path in named_paths(spec):
        if field.startswith(_CODE_FIELDS):
            text = attached.get(field)
            content = None if text is None else text.encode()
            code = code_at(field, Path(path), home, content)
            if code is not None:
                yield code


def _place_of(spec: TrainingSpec, path: str) -> tuple[str, bool]:
    """A path without the host that it names, and whether it names one."""
    is_hosts = path.startswith((ON_BOX, f"{spec.host}:/"))
    return (path.partition(":")[2] if is_hosts else path), is_hosts


def _led_to(path: str) -> str:
    return path if "\0" in path else os.path.realpath(path)  # opening the former fails


def _places(spec: TrainingSpec) -> Iterator[tuple[str, str]]:
    """The fields that name files and folders, of this machine or of the host."""
    for field, path in named_paths(spec):
        if field != "data.tokenizer" or path.startswith(("/", ON_BOX)):
            yield field, path
    mirror = spec.checkpoint.mirror
    if mirror is not None and mirror.startswith(ON_BOX):
        yield "checkpoint.mirror", mirror
    if isinstance(spec.environment, EnvironmentSpec) and spec.host not in HERE:
        python = spec.environment.python
        if python is not None and os.path.isabs(python):
            yield "environment.python", f"{ON_BOX}{python}"


def _buckets(spec: TrainingSpec) -> Iterator[tuple[str, StoreAddress]]:
    """The fields that name an object store."""
    places = [(f"{field}.path", source.path) for field, source in spec.data.inputs]
    for field, place in (*places, ("checkpoint.mirror", spec.checkpoint.mirror or "")):
        address = StoreAddress.find(place)
        if address is not None:
            yield field, address


def _addresses(spec: TrainingSpec) -> Iterator[tuple[str, str]]:
    """The values that name a server which the training, or its plan, would ask."""
    for name, value in spec.env.items():
        if names_server(name) or ("://" in value and not is_free_text(name)):
            yield f"env.{name}", value
    for name, options in spec.tracking.items():
        for option, value in options.items() if isinstance(options, dict) else ():
            if "://" in str(value):
                yield f"tracking.{name}.{option}", str(value)


def refuse_private_inputs(home: Home, spec: TrainingSpec) -> None:
    """Raises:
    SpecError: `UNSAFE_NAME`, a path of the spec leads into the home's keys or secrets.
    """
    for field, path in named_paths(spec):
        if path.startswith(ON_BOX) and spec.host not in HERE:
            continue  # a path of another machine
        if home.keeps_private(Path(path.removeprefix(ON_BOX))):
            raise SpecError(
                "UNSAFE_NAME",
                f"`{field}` leads to where Trainmaster keeps secrets or settings.",
                "Name another file or folder.",
                field=field,
            )


def named_paths(spec: TrainingSpec) -> Iterator[tuple[str, str]]:
    """The fields of a spec that name files or folders to be read, with their values."""
    paths: list[tuple[str, object]] = [
        *(
            (f"{field}.path", source.path)
            for field, source in spec.data.inputs
            if not source.path.startswith((HUB, *STORES))
        ),
        ("model.path", spec.model.path),
        ("data.tokenizer", spec.data.tokenizer),
        ("method_args.reward_file", spec.method_args.get("reward_file")),
        ("script.path", None if spec.script is None else spec.script.path),
    ]
    if isinstance(spec.environment, EnvironmentSpec):
        fields = ("requirements", "setup", "wheels")
        paths += [(f"environment.{name}", getattr(spec.environment, name)) for name in fields]
    yield from ((field, path) for field, path in paths if isinstance(path, str))

"""Refuses specs that let a training read the home's keys and secrets: its log could leak them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainer_runtime.core.files.corpus import ON_BOX
from trainmaster.backends import HERE
from trainmaster.errors.errors import SpecError
from trainmaster.home.paths import Home
from trainmaster.plan.spec import EnvironmentSpec, TrainingSpec


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
        *((f"{field}.path", source.path) for field, source in spec.data.inputs),
        ("model.path", spec.model.path),
        ("data.tokenizer", spec.data.tokenizer),
        ("method_args.reward_file", spec.method_args.get("reward_file")),
        ("script.path", None if spec.script is None else spec.script.path),
    ]
    if isinstance(spec.environment, EnvironmentSpec):
        fields = ("requirements", "setup", "wheels")
        paths += [(f"environment.{name}", getattr(spec.environment, name)) for name in fields]
    yield from ((field, path) for field, path in paths if isinstance(path, str))

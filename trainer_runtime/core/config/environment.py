"""The Python environment that trains, as it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields


@dataclass(frozen=True, slots=True)
class EnvironmentConfig:
    """`mode`: `auto`; `existing`, one interpreter as it is; `given`, as the spec describes it.

    `packages` are requirement lines, in place of those of the run's `requirements.txt` where there
    are any. `python` is the one to take, for `auto` the one to try first. `requirements` and
    `setup`: whether the run's folder has the user's own. `wheels_from`: the client's folder that
    `wheels` are sent from. `bounds` limit what is installed. `optional`: requirement lines of what
    only makes things faster, for environments that are built.
    """

    mode: str
    python: str | None = None
    requirements: bool = False
    setup: bool = False
    modules: tuple[str, ...] = ()
    wheels: str | None = None
    wheels_from: str | None = None
    bounds: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @classmethod
    def find(cls, fields: Fields, name: str) -> EnvironmentConfig | None:
        """The section `name`; None for a config that says nothing of it."""
        given = fields.values.get(name)
        if isinstance(given, str):
            return cls(given)
        section = fields.find_section(name)
        return None if section is None else cls.of(section)

    @classmethod
    def of(cls, fields: Fields) -> EnvironmentConfig:
        return cls(
            # Configs of earlier versions name an interpreter and nothing else.
            mode=fields.text("mode", "existing"),
            python=fields.find_text("python"),
            requirements=bool(fields.values.get("requirements")),
            setup=bool(fields.values.get("setup")),
            modules=fields.texts("modules"),
            wheels=fields.find_text("wheels"),
            wheels_from=fields.find_text("wheels_from"),
            bounds=fields.text_map("bound"),
            packages=fields.texts("packages"),
            optional=fields.texts("optional"),
        )

    @property
    def is_fixed(self) -> bool:
        """Whether one interpreter is to be taken as it is, or not at all."""
        if self.mode == "given" and self.python is not None:
            return not self.requirements and self.wheels is None
        return self.mode == "existing"

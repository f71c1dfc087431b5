"""The cases of `skills/*/evals`: what a person says, what is planted, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.settings.yaml12 import load_yaml

SKILLS = Path(__file__).resolve().parents[3] / "skills"
NAMES = tuple(sorted(path.name for path in SKILLS.iterdir()))


@dataclass(frozen=True, slots=True)
class Case:
    """`situation`: what is planted (`situations.py`). `must`, `never`: tools that are to be called,
    or may not be. `most`: the number of calls at most. `end`: what holds afterwards (`judge.py`).
    `says`: what the user answers to forms, `accept` or `decline`; None for a client without forms.
    `agent`: `model` for what only a model can read out of a prompt."""

    id: str
    skill: str
    prompt: str
    situation: str
    must: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    most: int = 4
    end: Mapping[str, Any] = field(default_factory=dict)
    says: str | None = None
    agent: str = "any"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A prompt, and the skill that it is about; None for none. `agent` as of a case."""

    prompt: str
    skill: str | None
    agent: str = "any"


def cases() -> list[Case]:
    """All, by skill.

    Raises:
        TypeError: a case has a field that there is not.
    """
    return [
        Case(**{**one, "skill": skill, **_tuples(one)})
        for skill in NAMES
        for one in _listed(SKILLS / skill / "evals" / "cases.yaml")
    ]


def triggers() -> Iterator[Trigger]:
    """The prompts of each skill, and those of none."""
    for skill in NAMES:
        document = _loaded(SKILLS / skill / "evals" / "triggers.yaml")
        yield from (Trigger(prompt, skill) for prompt in document["this"])
        yield from (Trigger(prompt, None) for prompt in document["none"])
        yield from (Trigger(prompt, None, "model") for prompt in document["none_by_meaning"])


def description_of(skill: str) -> str:
    """What a client shows of a skill."""
    _, frontmatter, _ = (SKILLS / skill / "SKILL.md").read_text().split("---\n", 2)
    return str(_of_mapping(load_yaml(frontmatter))["description"])


def _tuples(one: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(one[name]) for name in ("must", "never") if name in one}


def _listed(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _loaded(path)["cases"]
    return found


def _loaded(path: Path) -> dict[str, Any]:
    return _of_mapping(load_yaml(path.read_text()))


def _of_mapping(loaded: object) -> dict[str, Any]:
    assert isinstance(loaded, dict)
    return loaded

"""Probes the image that a spec names: for a plan whether the host has it, for a launch also whether
it can be pulled, or trained in. Texts are those of the host's preparation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainer_runtime.core.environment.image_problem import ImageProblem
from trainer_runtime.core.protocol.text import cleaned
from trainmaster.backends import DEBUG, Backend, ImageTester
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.errors import HostError
from trainmaster.plan import Decision

_FIELD = "compute.image"
_LONGEST_QUOTE = 300


async def find_image(backend: Backend, config: Mapping[str, Any]) -> list[Decision]:
    """What a plan says of the image; none for a training without one. Runs nothing of it.

    Raises:
        HostError: `CONTAINER_ENGINE_MISSING`, `IMAGE_UNUSABLE`: a launch would fail.
    """
    name = _image(backend, config)
    if name is None:
        return []
    answer = await ImageTester.of(backend, field=_FIELD).find_image(name)
    _refuse(answer.problem)
    if answer.digest is None:
        reason = (
            f"{backend.name} does not have it: launch asks its registry for it, and the run's "
            "preparation pulls and tries it."
        )
    else:
        reason = (
            f"{backend.name} has it ({cleaned(answer.digest, _LONGEST_QUOTE)}). Launch tries its "
            "Python and PyTorch before anything starts."
        )
    return [Decision(field=_FIELD, value=name, reason=reason)]


async def try_image(
    backend: Backend, config: Mapping[str, Any], requirements: Sequence[str]
) -> list[str]:
    """Check that a run of this config can train in its image on a host; warnings, where that is
    not known. An unreachable host is not waited for.

    Raises:
        HostError: `CONTAINER_ENGINE_MISSING`, `IMAGE_UNUSABLE`.
    """
    name = _image(backend, config)
    if name is None:
        return []
    tester = ImageTester.of(backend, field=_FIELD)
    enter_stage(f"trying {name} on {backend.name}")
    try:
        answer = await tester.try_image(config, requirements)
    except HostError as error:
        if error.unanswered:
            return [_untried(name, "can be used", f"{backend.name} did not answer")]
        raise
    _refuse(answer.problem)
    if answer.untried is None:
        return []
    what = "can be pulled" if answer.digest is None else "can be trained in"
    return [_untried(name, what, cleaned(answer.untried, _LONGEST_QUOTE))]


def _untried(name: str, what: str, said: str) -> str:
    return f"Whether {name} {what} is not known ({said}): the run's preparation tries it."


def _image(backend: Backend, config: Mapping[str, Any]) -> str | None:
    """The image that is to be tested; the debug host, which only plays trainings, needs none."""
    compute = config.get("compute") or {}
    is_tested = compute.get("launcher") == "docker" and backend.name != DEBUG
    return str(compute["image"]) if is_tested else None


def _refuse(problem: ImageProblem | None) -> None:
    """Raises:
    HostError: `CONTAINER_ENGINE_MISSING`, `IMAGE_UNUSABLE`.
    """
    if problem is None:
        return
    lacks_engine = problem.kind == "engine"
    raise HostError(
        "CONTAINER_ENGINE_MISSING" if lacks_engine else "IMAGE_UNUSABLE",
        _sentence(problem.what),
        _sentence(problem.remedy),
        field="compute.launcher" if lacks_engine else _FIELD,
    )


def _sentence(text: str) -> str:
    """`text` with a capital, unless it begins with the name of a field or a program, and a stop."""
    word = text.partition(" ")[0]
    begins = text if "." in word or "/" in word else text[:1].upper() + text[1:]
    return f"{begins}."

"""The image that a run trains in: found on the host, or pulled.

What is found wrong is said before the training starts, with what to change: no engine, an image
that can't be pulled, or another processor's. `image_trial` tries its Python and PyTorch.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, Fields, decode_value
from trainer_runtime.core.environment.image_problem import (
    OF_NO_REGISTRY,
    ImageProblem,
    full_name,
)
from trainer_runtime.host.containers.container import Image
from trainer_runtime.host.containers.engine import Engine, NoEngineError, ask_engine, find_engine
from trainer_runtime.host.containers.registry import FINAL
from trainer_runtime.host.environment.installers import (
    EnvironmentUnavailableError,
    EnvironmentUnusableError,
)
from trainer_runtime.host.processes.commands import Report, follow

LABEL = "image"
PROBLEM_LENGTH = 400
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class ImageUnusableError(EnvironmentUnusableError):
    """Nothing can be trained in an image; `problem` says why, and what to change."""

    def __init__(self, problem: ImageProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def find_image(name: str, folder: Path, report: Report) -> Image:
    """The image of this name, pulled where the host does not have it; its Python is not known yet.

    Raises:
        EnvironmentUnusableError: no engine answers, or the image can't be had.
        EnvironmentUnavailableError: it can't be pulled just now.
    """
    engine = engine_for(name)
    report(f"{LABEL}: {engine.label}, {name}")
    image = image_there(engine, name)
    if image is None:
        refuse_of_no_registry(engine, name)
        name = _pull(engine, name, folder, report)
        image = image_there(engine, name)
    if image is None:
        raise EnvironmentUnusableError(f"{engine.kind} pulled {name}, but does not have it")
    report(f"{LABEL}: {image.digest or image.id}")
    return image


def engine_for(name: str) -> Engine:
    """The engine that is to run the image of this name.

    Raises:
        ImageUnusableError: none answers.
    """
    try:
        return find_engine(os.environ)
    except NoEngineError as error:
        raise ImageUnusableError(ImageProblem("engine", name, said=str(error))) from None


def image_there(engine: Engine, name: str) -> Image | None:
    """The image of this name, where the engine has it.

    Raises:
        ImageUnusableError: it is for another processor.
    """
    inspected = _inspected(engine, name)
    if inspected is None:
        return None
    machine = _MACHINES.get(platform.machine(), platform.machine())
    made_for = inspected.text("Architecture", machine)
    if made_for != machine:
        said = f"{made_for} and the host is {machine}"
        raise ImageUnusableError(ImageProblem("processor", name, engine.kind, said))
    return Image(
        engine, name, inspected.text("Id"), "", _digest(name, inspected.texts("RepoDigests"))
    )


def refuse_of_no_registry(engine: Engine, name: str) -> None:
    """Refuse a missing image that can't be pulled from anywhere, by its name.

    Raises:
        ImageUnusableError
    """
    if full_name(name).startswith(OF_NO_REGISTRY):
        raise ImageUnusableError(ImageProblem("local", name, engine.kind))


def _inspected(engine: Engine, name: str) -> Fields | None:
    # Without a template, in which Docker and Podman name the fields differently.
    answer = ask_engine(engine.program, "image", "inspect", name)
    if answer.code != 0:
        return None
    documents = decode_value(answer.output, "image inspect", max_bytes=MAX_DOCUMENT_BYTES)
    if isinstance(documents, list) and documents and isinstance(documents[0], dict):
        return Fields(documents[0], "image inspect")
    return None


def _digest(name: str, digests: Sequence[str]) -> str | None:
    """The digest by which the image's registry knows it; None of an image that has been in none.

    An image may have come from several, and Docker leaves its own registry's name out.
    """
    repository = re.sub(r"(@|:[^/]*\Z).*", "", name).removeprefix("docker.io/")
    of_repository = [digest for digest in digests if digest.partition("@")[0].endswith(repository)]
    return min(
        [*of_repository, *digests], key=lambda digest: digest not in of_repository, default=None
    )


def _pull(engine: Engine, name: str, folder: Path, report: Report) -> str:
    """Pull an image; its full name."""
    full = full_name(name)
    report(f"{LABEL}: pulling {full}")
    ended = follow(
        [engine.program, "pull", full],
        report,
        label=LABEL,
        folder=folder,
        environment=os.environ,
    )
    if ended.code == 0:
        return full
    said = ended.last_words[:PROBLEM_LENGTH]
    problem = ImageProblem("pull", name, engine.kind, said)
    if FINAL.search(" ".join(ended.lines[-3:])):
        raise ImageUnusableError(problem)
    raise EnvironmentUnavailableError(problem.what)

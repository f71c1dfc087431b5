"""Tries the image that a run trains in: its Python, its packages, and whether its PyTorch computes.

Before a launch in a container without a network and without anything of the host, into which the
same programs go by the command line; by the preparation in one as the trainer's.
"""

from __future__ import annotations

import hashlib
import json
import os
import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import Fields, decode_fields
from trainer_runtime.core.environment.image_problem import ImageProblem
from trainer_runtime.core.environment.requirements import release_of, unsatisfied
from trainer_runtime.core.protocol.command import command
from trainer_runtime.host.containers.container import (
    NOT_STARTED,
    Container,
    Image,
    home,
    unmountable,
)
from trainer_runtime.host.environment.image import PROBLEM_LENGTH, ImageUnusableError
from trainer_runtime.host.environment.installers import EnvironmentUnusableError
from trainer_runtime.host.environment.interpreters import OLDEST_PYTHON, driver
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.processes.commands import UNANSWERED, Ended, Report, ask

_PYTHONS = ("python3", "python")
_FACTS = "trainer_runtime.host.environment.interpreter_facts"
_TORCH_CHECK = "trainer_runtime.train.checks.torch_check"
_CHECK_S = 300.0
# A program ends by itself where nobody is left who would end it, as where the link was cut.
_LONGER_S = 10
_ALONE = "import signal, sys; signal.alarm({}); exec(sys.argv.pop(1))"
# Whether the image lacks a program, or has another file of its name, in the runtimes' words.
_NO_PROGRAM = re.compile(
    r"executable file|no such file or directory|is a directory|exec format error", re.IGNORECASE
)


class NoAnswerError(ImageUnusableError):
    """The image's Python did not answer in time: whether it can be used is not known."""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """`container`: as it will train, still without the image's Python. `lines`: what has to be
    installed. `within_s`: how long each question to the image may take."""

    container: Container
    lines: Sequence[str]
    cache: Path
    report: Report
    within_s: float = _CHECK_S

    @property
    def name(self) -> str:
        return self.container.config.compute.image or ""

    def problem(self, kind: str, said: str = "") -> ImageProblem:
        """A problem of this image."""
        return ImageProblem(kind, self.name, self.container.image.engine.kind, said)


@dataclass(frozen=True, slots=True)
class TriedImage:
    """An image that can be trained in, with its `python`. `torch`: the version of its PyTorch, None
    of what a program trains in."""

    image: Image
    torch: str | None


def settle_image(request: ImageRequest) -> dict[str, Any]:
    """What `environment.json` says of the image that trains, which was tried.

    Raises:
        EnvironmentUnusableError: nothing can be trained in it.
    """
    container, name = request.container, request.name
    colon = unmountable(container.config, container.run)
    if colon is not None:
        raise EnvironmentUnusableError(
            f"{colon} can't be mounted into a container: its path has a colon; give the host "
            "another root or cache "
            f"({command('hosts add', 'HOST', 'ADDRESS', '--root', 'DIR', '--cache', 'DIR')}), or "
            "move the data"
        )
    home(container.config).mkdir(parents=True, exist_ok=True)
    tried = try_image(request)
    if tried.torch is not None:
        request.report(f"environment: {tried.image.python} of {name}, PyTorch {tried.torch}")
    return {
        "python": tried.image.python,
        "how": f"image {name}",
        "torch": tried.torch,
        "hash": None,
        "container": tried.image.to_dict(),
    }


def try_image(request: ImageRequest) -> TriedImage:
    """The image with its Python, once that and its PyTorch have shown that they can train.

    Raises:
        ImageUnusableError: they can't; `NoAnswerError` where that is not known.
        EnvironmentUnusableError: its containers don't see the run's folder.
    """
    python, facts = _python_facts(request)
    container = request.container
    image = replace(container.image, python=facts.text("python"))
    version = facts.text("version")
    if release_of(version)[:2] < OLDEST_PYTHON:
        raise ImageUnusableError(request.problem("old_python", version))
    missing = tuple(unsatisfied(request.lines, facts.text_map("distributions")))
    if missing:
        problem = request.problem("packages", image.python)
        raise ImageUnusableError(replace(problem, lacking=missing, python=python))
    # What a program of the user's needs is its own affair.
    has_torch = container.config.script is None
    container = replace(container, image=image)
    return TriedImage(image, _torch(replace(request, container=container)) if has_torch else None)


def _python_facts(request: ImageRequest) -> tuple[str, Fields]:
    """The name of the image's interpreter, and what that reports of itself."""
    ended = Ended(127, ())
    for python in _PYTHONS:
        ended = _ask(request, python, _FACTS)
        if ended.code == 0:
            return python, _decoded(request, ended)
        if not _NO_PROGRAM.search(ended.last_words):
            break
    engine = request.container.image.engine
    text = ended.last_words[:PROBLEM_LENGTH]
    if not request.container.alone and any("trainer_runtime" in line for line in ended.lines):
        raise EnvironmentUnusableError(
            f"a container of {engine.kind} does not see the run's folder {request.container.run} "
            f"({text}); the engine has to run on the host itself"
        )
    if _NO_PROGRAM.search(text):
        raise ImageUnusableError(request.problem("no_python"))
    raise ImageUnusableError(request.problem("start", text))


def _decoded(request: ImageRequest, ended: Ended) -> Fields:
    """Raises:
    ImageUnusableError: what answers under the name of Python is none.
    """
    try:
        return decode_fields(ended.output.splitlines()[-1], "interpreter_facts")
    except (ValueError, LookupError):
        raise ImageUnusableError(request.problem("no_python")) from None


def _torch(request: ImageRequest) -> str:
    """The version of the image's PyTorch, which computes: known from before, or tried now."""
    container, device = request.container, request.container.config.compute.device
    kept = request.cache / "torch" / f"{_key(container.image, device)}.json"
    kept_version = (read_json(kept) or {}).get("version")
    if isinstance(kept_version, str):
        return kept_version
    ended = _ask(request, container.image.python, _TORCH_CHECK, device)
    if ended.code == NOT_STARTED:
        raise ImageUnusableError(request.problem("start", ended.last_words[:PROBLEM_LENGTH]))
    try:
        version = decode_fields(ended.output.splitlines()[-1], "torch_check").text("version")
    except (ValueError, LookupError):
        said = f"{device}: {ended.last_words[:PROBLEM_LENGTH]}"
        raise ImageUnusableError(request.problem("torch", said)) from None
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_json(kept, {"version": version})
    return version


def _key(image: Image, device: str) -> str:
    seen = [image.id, image.python, device, driver(), os.environ.get("CUDA_VISIBLE_DEVICES")]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:24]


def _ask(request: ImageRequest, python: str, module: str, *words: str) -> Ended:
    """Run a module of ours by the image's interpreter.

    Raises:
        NoAnswerError: it took too long.
    """
    container = request.container
    image = replace(container.image, python=python)
    variables: Mapping[str, str] = container.config.env
    program = ["-m", module]
    if container.alone:
        program = ["-c", _ALONE.format(int(request.within_s) + _LONGER_S), _source(module)]
    command = [
        *replace(container, image=image).plain(("--rm",), variables),
        *(image.id, *program, *words),
    ]
    ended = ask(command, folder=container.run, environment=os.environ, timeout_s=request.within_s)
    if ended.code == UNANSWERED:
        raise NoAnswerError(request.problem("start", ended.last_words))
    return ended


def _source(module: str) -> str:
    """The text of a module that needs nothing but the standard library."""
    package, _, name = module.rpartition(".")
    return (pkgutil.get_data(package, f"{name}.py") or b"").decode()

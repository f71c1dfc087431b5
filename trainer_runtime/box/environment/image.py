"""The image that a run trains in: found on the host or pulled, its Python and PyTorch tried.

What is found wrong is said before the training starts, with what to change: no engine, an image
that can't be pulled, another processor's, without Python 3.10, PyTorch or the framework's packages,
or one whose PyTorch does not compute here.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer_runtime.box.containers.container import (
    NOT_STARTED,
    Container,
    Image,
    home,
    unmountable,
)
from trainer_runtime.box.containers.engine import (
    REMEDY,
    Engine,
    NoEngineError,
    ask_engine,
    find_engine,
)
from trainer_runtime.box.environment.installers import (
    EnvironmentUnavailableError,
    EnvironmentUnusableError,
)
from trainer_runtime.box.environment.interpreters import OLDEST_PYTHON, driver
from trainer_runtime.box.files.files import read_json, write_json
from trainer_runtime.box.processes.commands import Ended, Report, ask, follow
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, Fields, decode_fields, decode_value
from trainer_runtime.core.environment.requirements import release_of, unsatisfied
from trainer_runtime.core.records import dataclass

LABEL = "image"
# What Podman puts before the names of images that were built on the host.
_OF_NO_REGISTRY = "localhost/"
_PYTHONS = ("python3", "python")
_FACTS = "trainer_runtime.box.environment.interpreter_facts"
_TORCH_CHECK = "trainer_runtime.train.checks.torch_check"
_CHECK_S = 300.0
_PROBLEM_LENGTH = 400
# A pull that would fail again in the same way; the rest may be the network's.
_FINAL = re.compile(
    r"manifest unknown|not found|denied|unauthorized|invalid reference|short-name|"
    r"does not exist|no such (image|manifest)|no matching manifest|repository name",
    re.IGNORECASE,
)
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
# Whether the image lacks a program, or has another file of its name, in the runtimes' words.
_NO_PROGRAM = re.compile(
    r"executable file|no such file or directory|is a directory|exec format error", re.IGNORECASE
)
_NVIDIA = re.compile(r"nvidia|capabilities: \[\[gpu\]\]|CDI device", re.IGNORECASE)
_NVIDIA_REMEDY = (
    "install the NVIDIA Container Toolkit on the host; for Podman also run "
    "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
)


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """`container`: as it will train, still without an image. `lines`: what has to be installed."""

    container: Container
    lines: Sequence[str]
    cache: Path
    report: Report

    @property
    def name(self) -> str:
        return self.container.config.compute.image or ""


def find_image(name: str, folder: Path, report: Report) -> Image:
    """The image of this name, pulled where the host does not have it; its Python is not known yet.

    Raises:
        EnvironmentUnusableError: no engine answers, or the image can't be had.
        EnvironmentUnavailableError: it can't be pulled just now.
    """
    try:
        engine = find_engine(os.environ)
    except NoEngineError as error:
        raise EnvironmentUnusableError(
            f"compute.launcher is docker, and no container engine answers: {error}; {REMEDY}"
        ) from None
    report(f"{LABEL}: {engine.label}, {name}")
    found = _inspected(engine, name)
    if found is None:
        name = _pull(engine, name, folder, report)
        found = _inspected(engine, name)
    if found is None:
        raise EnvironmentUnusableError(f"{engine.kind} pulled {name}, but does not have it")
    machine = _MACHINES.get(platform.machine(), platform.machine())
    made_for = found.text("Architecture", machine)
    if made_for != machine:
        raise EnvironmentUnusableError(
            f"compute.image {name} is for {made_for} and the host is {machine}; name one that is "
            f"built for {machine}"
        )
    image = Image(engine, name, found.text("Id"), "", _digest(name, found.texts("RepoDigests")))
    report(f"{LABEL}: {image.digest or image.id}")
    return image


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
            "another root or cache (`trainmaster hosts add … --root --cache`), or move the data"
        )
    home(container.config).mkdir(parents=True, exist_ok=True)
    facts = _python_facts(request)
    found = replace(container.image, python=facts.text("python"))
    container = replace(container, image=found)
    version = facts.text("version")
    if release_of(version)[:2] < OLDEST_PYTHON:
        raise EnvironmentUnusableError(
            f"compute.image {name} has Python {version}, and the runtime needs 3.10 or newer; "
            "name an image with a newer one"
        )
    missing = unsatisfied(request.lines, facts.text_map("distributions"))
    if missing:
        raise EnvironmentUnusableError(
            f"{found.python} of compute.image {name} lacks {', '.join(missing)}; name an image "
            f"that has it, or build one: `FROM {name}` and `RUN {found.python} -m pip install "
            f"{' '.join(_quoted(line) for line in missing)}`"
        )
    # What a program of the user's needs is its own affair.
    has_torch = container.config.script is None
    torch = _torch(replace(request, container=container)) if has_torch else None
    if torch is not None:
        request.report(f"environment: {found.python} of {name}, PyTorch {torch}")
    return {
        "python": found.python,
        "how": f"image {name}",
        "torch": torch,
        "hash": None,
        "container": found.to_dict(),
    }


def _inspected(engine: Engine, name: str) -> Fields | None:
    # Without a template, in which Docker and Podman name the fields differently.
    answer = ask_engine(engine.program, "image", "inspect", name)
    if answer.code != 0:
        return None
    found = decode_value(answer.output, "image inspect", max_bytes=MAX_DOCUMENT_BYTES)
    if isinstance(found, list) and found and isinstance(found[0], dict):
        return Fields(found[0], "image inspect")
    return None


def _digest(name: str, digests: Sequence[str]) -> str | None:
    """The digest by which the image's registry knows it; None of an image that has been in none.

    An image may have come from several, and Docker leaves its own registry's name out.
    """
    repository = re.sub(r"(@|:[^/]*\Z).*", "", name).removeprefix("docker.io/")
    known = [one for one in digests if one.partition("@")[0].endswith(repository)]
    return min([*known, *digests], key=lambda one: one not in known, default=None)


def _pull(engine: Engine, name: str, folder: Path, report: Report) -> str:
    """Pull an image; its full name."""
    full = _full_name(name)
    if full.startswith(_OF_NO_REGISTRY):
        raise EnvironmentUnusableError(
            f"compute.image {full} is not among the images of this account on the host, and no "
            f"registry has what is named {_OF_NO_REGISTRY}…; build or load it there with the "
            f"account that trains (`{engine.kind} images` lists that account's)"
        )
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
    problem = f"compute.image {full} can't be pulled: {ended.last_words[:_PROBLEM_LENGTH]}"
    if _FINAL.search(" ".join(ended.lines[-3:])):
        raise EnvironmentUnusableError(
            f"{problem}; check its name and tag, and log in on the host where it is private "
            f"(`{engine.kind} login`)"
        )
    raise EnvironmentUnavailableError(problem)


def _full_name(name: str) -> str:
    """The name with its registry, as Docker completes it: Podman would ask which one is meant."""
    domain, slash, rest = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    is_domain = "." in domain or ":" in domain or domain == "localhost"
    return name if is_domain and rest else f"docker.io/{name}"


def _python_facts(request: ImageRequest) -> Fields:
    """What the image's interpreter reports of itself."""
    ended = Ended(127, ())
    for python in _PYTHONS:
        ended = _ask(request, python, ["-m", _FACTS])
        if ended.code == 0:
            return decode_fields(ended.output.splitlines()[-1], "interpreter_facts")
        if not _NO_PROGRAM.search(ended.last_words):
            break
    name, engine = request.name, request.container.image.engine
    text = ended.last_words[:_PROBLEM_LENGTH]
    if any("trainer_runtime" in line for line in ended.lines):
        raise EnvironmentUnusableError(
            f"a container of {engine.kind} does not see the run's folder {request.container.run} "
            f"({text}); the engine has to run on the host itself"
        )
    if _NO_PROGRAM.search(text):
        raise EnvironmentUnusableError(
            f"compute.image {name} has no Python: it needs `python3` (3.10 or newer) and PyTorch; "
            "name an image that has both, such as one of pytorch/pytorch"
        )
    raise EnvironmentUnusableError(_not_started(request, ended))


def _torch(request: ImageRequest) -> str:
    """The version of the image's PyTorch, which computes: known from before, or tried now."""
    container, device = request.container, request.container.config.compute.device
    kept = request.cache / "torch" / f"{_key(container.image, device)}.json"
    known = (read_json(kept) or {}).get("version")
    if isinstance(known, str):
        return known
    ended = _ask(request, container.image.python, ["-m", _TORCH_CHECK, device])
    if ended.code == NOT_STARTED:
        raise EnvironmentUnusableError(_not_started(request, ended))
    try:
        version = decode_fields(ended.output.splitlines()[-1], "torch_check").text("version")
    except (ValueError, LookupError):
        raise EnvironmentUnusableError(
            f"PyTorch of compute.image {request.name} can't be used on {device}: "
            f"{ended.last_words[:_PROBLEM_LENGTH]}; name an image whose PyTorch is built for this "
            "host"
        ) from None
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_json(kept, {"version": version})
    return version


def _key(image: Image, device: str) -> str:
    seen = [image.id, image.python, device, driver(), os.environ.get("CUDA_VISIBLE_DEVICES")]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:24]


def _ask(request: ImageRequest, python: str, words: Sequence[str]) -> Ended:
    """Ask the image's interpreter in a container as the trainer's."""
    container = request.container
    image = replace(container.image, python=python)
    variables: Mapping[str, str] = container.config.env
    command = [*replace(container, image=image).plain(("--rm",), variables), image.id, *words]
    return ask(command, folder=container.run, environment=os.environ, timeout_s=_CHECK_S)


def _not_started(request: ImageRequest, ended: Ended) -> str:
    text = ended.last_words[:_PROBLEM_LENGTH]
    engine = request.container.image.engine
    remedy = _NVIDIA_REMEDY if _NVIDIA.search(text) else f"try `{engine.kind} run {request.name}`"
    return f"{engine.kind} can't start a container of {request.name}: {text}; {remedy}"


def _quoted(line: str) -> str:
    return f"'{line}'" if set(line) & set("<>=, ") else line

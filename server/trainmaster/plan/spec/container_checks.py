"""Checks what a spec says of the container that it trains in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.document import TrainingSpec

SHM_SIZE = "16g"
_LONGEST_NAME = 255
# The grammar of references: https://pkg.go.dev/github.com/distribution/reference
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?"
_IMAGE = re.compile(
    rf"(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?"
    r"(?:@sha256:[0-9a-f]{64})?"
)
_EXAMPLE = "such as pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"


def container_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """What contradicts `compute.launcher`, and images that have no such name."""
    compute = spec.compute
    if compute.launcher != "docker":
        fix = "Set compute.launcher to docker, or remove it."
        if compute.image is not None:
            yield wrong_value("compute.image", "is given, but no container is asked for.", fix)
        if compute.shm_size != SHM_SIZE:
            yield wrong_value("compute.shm_size", "is given, but no container is asked for.", fix)
        return
    if compute.image is None:
        yield Problem(
            "MISSING_FIELD",
            "compute.image",
            "`compute.image` is missing.",
            f"Name an image with Python 3.10 or newer and PyTorch, {_EXAMPLE}.",
        )
    elif len(compute.image) > _LONGEST_NAME or not _IMAGE.fullmatch(compute.image):
        yield wrong_value(
            "compute.image",
            f"is {compute.image[:120]!r}, which is not a valid name of an image.",
            f"Give registry/repository:tag, its repository in lower case, {_EXAMPLE}.",
        )
    yield from _contradictions(spec)


def _contradictions(spec: TrainingSpec) -> Iterator[Problem]:
    if spec.host == "kaggle":
        yield wrong_value(
            "compute.launcher",
            "is docker, but Kaggle's sessions run in an image of their own.",
            "Remove compute.launcher and compute.image, or choose another host.",
        )
    machines = max(spec.compute.nodes, 1 + len(spec.other_hosts))
    if machines > 1:
        yield wrong_value(
            "compute.launcher",
            f"is docker, but containers train on one machine, not on {machines}.",
            "Name one host and one node, or remove compute.launcher and compute.image.",
        )
    if spec.environment != "auto":
        yield wrong_value(
            "environment",
            "is given, but the image's own Python and packages train.",
            "Remove environment: build into the image what it lacks (`FROM`, `RUN pip install`).",
        )
    if spec.pty:
        yield wrong_value(
            "pty",
            "is true, but a trainer in a container has no terminal.",
            "Set pty to false; PYTHONUNBUFFERED is set inside, so that lines come at once.",
        )

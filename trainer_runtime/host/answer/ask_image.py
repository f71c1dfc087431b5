"""Says before a launch whether the image that it names can be had and trained in.

What the host does not have is not pulled: its registry is asked, and the preparation pulls it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.environment.image_problem import ImageAnswer, ImageProblem, full_name
from trainer_runtime.host.containers.container import Container, Image, remove_containers
from trainer_runtime.host.containers.engine import Engine
from trainer_runtime.host.containers.registry import refused_by_registry
from trainer_runtime.host.environment.image import (
    ImageUnusableError,
    engine_for,
    image_there,
    refuse_of_no_registry,
)
from trainer_runtime.host.environment.image_trial import ImageRequest, NoAnswerError, try_image

# A first import of PyTorch from a slow disk takes this long; the preparation waits for longer.
_TRIED_WITHIN_S = 60.0
# What the run's mounts may add to an image, which are not there when it is tried.
_PATH, _MAY_BE_MOUNTED = "PYTHONPATH", ("packages", "torch")


def find(name: str) -> ImageAnswer:
    """Whether the image of this name is here; runs nothing of it and asks no registry."""
    try:
        engine = engine_for(name)
        image = image_there(engine, name)
        if image is None:
            refuse_of_no_registry(engine, name)
    except ImageUnusableError as error:
        return ImageAnswer(error.problem)
    return ImageAnswer(digest=None if image is None else image.digest or image.id)


def check(
    config: RunConfig, lines: Sequence[str], cache: Path, within_s: float = _TRIED_WITHIN_S
) -> ImageAnswer:
    """Whether a run of this config could train in its image: one that is here is tried, the
    registry of another is asked. `lines`: the packages that the training needs; `within_s`: how
    long each question to the image may take."""
    name = config.compute.image or ""
    try:
        engine = engine_for(name)
        image = image_there(engine, name)
        if image is None:
            refuse_of_no_registry(engine, name)
            return _ask_registry(engine, name)
        return _try(_request(image, config, lines, cache, within_s))
    except ImageUnusableError as error:
        return ImageAnswer(error.problem)


def _ask_registry(engine: Engine, name: str) -> ImageAnswer:
    refused = refused_by_registry(engine, full_name(name))
    if refused is None:
        return ImageAnswer()
    if refused.final:
        return ImageAnswer(ImageProblem("pull", name, engine.kind, refused.words))
    return ImageAnswer(untried=refused.words)


def _request(
    image: Image, config: RunConfig, lines: Sequence[str], cache: Path, within_s: float
) -> ImageRequest:
    """For containers of no run."""
    alone = replace(config, run_id=f"image-trial-{uuid.uuid4().hex[:12]}")
    container = Container(image, Path("/"), alone, Path(), {}, alone=True)
    return ImageRequest(container, lines, cache, lambda _: None, within_s)


def _try(request: ImageRequest) -> ImageAnswer:
    """Try an image; none of its containers is left.

    Raises:
        ImageUnusableError: nothing can be trained in it.
    """
    image, untried = request.container.image, None
    try:
        try_image(request)
    except NoAnswerError as error:
        remove_containers(image.engine, request.container.config.run_id)
        untried = error.problem.said
    except ImageUnusableError as error:
        if error.problem.kind not in _MAY_BE_MOUNTED or _PATH not in request.container.config.env:
            raise
        untried = f"{error.problem.what}, but env.{_PATH} may name folders that have it"
    return ImageAnswer(digest=image.digest or image.id, untried=untried)

"""Tests on a machine the images that trainings in containers name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trainer_runtime.core.environment.image_problem import ImageAnswer
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call

# The host's own bounds end first: those of an engine that hangs, a registry, an image's Python.
_FOUND_WITHIN_S = 120.0
_TRIED_WITHIN_S = 330.0


async def find_image(host: Host, name: str) -> ImageAnswer:
    """Whether the machine has an image.

    Raises:
        HostError: no usable answer.
    """
    call = RuntimeCall("image", ["--", name], _failure(host, name), _FOUND_WITHIN_S)
    return await runtime_call(host, call, lambda answer: ImageAnswer.of(answer, name, ()))


async def try_image(host: Host, config: Mapping[str, Any], lines: Sequence[str]) -> ImageAnswer:
    """Whether a run of this config, which needs the packages of `lines`, could train in its image.

    Raises:
        HostError: no usable answer.
    """
    name = str(config["compute"]["image"])
    call = RuntimeCall(
        "try-image",
        ["--", await host.cache()],
        _failure(host, name),
        _TRIED_WITHIN_S,
        stdin=json.dumps({"config": config, "lines": list(lines)}).encode(),
        acts=True,
    )
    return await runtime_call(host, call, lambda answer: ImageAnswer.of(answer, name, lines))


def _failure(host: Host, name: str) -> Failure:
    return Failure(
        f"compute.image {name} could not be tested on {host.name}",
        f"{command('hosts check', host.name)} finds the cause.",
        field="compute.image",
    )

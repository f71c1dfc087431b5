"""Tests on a machine the images that trainings in containers name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trainer_runtime.core.environment.image_problem import ImageAnswer
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.capabilities import ImageTester
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call

# The host's own bounds end first: those of an engine that hangs, a registry, an image's Python.
_FOUND_WITHIN_S = 120.0
_TRIED_WITHIN_S = 330.0


class HostedImages(ImageTester):
    """The images of `_host`."""

    _host: Host

    async def find_image(self, name: str) -> ImageAnswer:
        call = RuntimeCall("image", ["--", name], self._untested(name), _FOUND_WITHIN_S)
        return await runtime_call(self._host, call, lambda answer: ImageAnswer.of(answer, name, ()))

    async def try_image(self, config: Mapping[str, Any], lines: Sequence[str]) -> ImageAnswer:
        name = str(config["compute"]["image"])
        call = RuntimeCall(
            "try-image",
            ["--", await self._host.cache()],
            self._untested(name),
            _TRIED_WITHIN_S,
            stdin=json.dumps({"config": config, "lines": list(lines)}).encode(),
            acts=True,
        )
        return await runtime_call(
            self._host, call, lambda answer: ImageAnswer.of(answer, name, lines)
        )

    def _untested(self, name: str) -> Failure:
        return Failure(
            f"compute.image {name} could not be tested on {self._host.name}",
            f"{command('hosts check', self._host.name)} finds the cause.",
            field="compute.image",
        )

"""`python -m trainer_runtime.train.sample CONFIG REQUEST`, in the run's folder: texts of its model.

REQUEST is the file of a `SampleRequest`. The last line of the output is the `SampleAnswer`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

import torch

from trainer_runtime.core.answers.sampled import SampleAnswer, SampledText, SampleRequest
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.manifest import ManifestError, read
from trainer_runtime.core.frameworks import framework_of
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.loop.drawing import Drawing, TextModel, draw
from trainer_runtime.train.loop.sampling import SavedModel, weights_folder

# Beside the weights, for what a forward pass takes.
_ROOM = 1.5
_FOR_ANSWER_S = 2.0
# A training may run beside it.
_NICE = 5


def main(config_path: str, request_path: str) -> int:
    """Generate what is asked for; the exit code."""
    begun_s = time.monotonic()
    request = SampleRequest.of(decode_fields(Path(request_path).read_bytes(), "the request"))
    signal.alarm(math.ceil(request.within_s))  # ends the process, wherever it is then
    os.nice(_NICE)
    try:
        config = RunConfig.parse(Path(config_path).read_bytes(), config_path)
        folder = weights_folder(Path.cwd(), request.start)
        device = _device(folder)
        model = _text_model(SavedModel(config, Path(config_path).parent, folder, request, device))
        until_s = begun_s + request.within_s - _FOR_ANSWER_S
        texts = tuple(_texts(model, request, until_s))
    except ConfigError as error:
        print(error, file=sys.stderr, flush=True)
        return ExitCode.UNUSABLE
    path = os.path.relpath(folder, Path.cwd())
    print(json.dumps(SampleAnswer(path, _step(folder), device, texts).to_dict()), flush=True)
    return 0


def _texts(model: TextModel, request: SampleRequest, until_s: float) -> list[SampledText]:
    """Each by a seed of its own, so that any of them can be asked for alone."""
    return [
        draw(
            model,
            request.prompt,
            Drawing(request.max_tokens, request.temperature, request.seed + number, until_s),
        )
        for number in range(request.count)
    ]


def _text_model(saved: SavedModel) -> TextModel:
    """Of the framework that trained it.

    Raises:
        ConfigError: it writes no text, or can't be read.
    """
    config = saved.config
    if config.method == "reward":
        raise ConfigError("a reward model rates texts and writes none")
    framework = framework_of(config.framework)
    if saved.request.chat and not framework.has_chat_template:
        raise ConfigError(f"models of {config.framework} have no chat template: leave `chat` out")
    module = import_module(f"trainer_runtime.train.{framework.text_model}.text_model")
    model: TextModel = module.load(saved)
    return model


def _device(folder: Path) -> str:
    """A GPU that has room beside what runs there, else the CPU."""
    if not torch.cuda.is_available():
        return "cpu"
    needed = _ROOM * sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return "cuda" if torch.cuda.mem_get_info()[0] > needed + 2**30 else "cpu"


def _step(folder: Path) -> int | None:
    try:
        return read(folder).step
    except ManifestError:
        return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

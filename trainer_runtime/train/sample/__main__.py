"""`python -m trainer_runtime.train.sample CONFIG REQUEST`, in the run's folder: texts of its model.

REQUEST is the file of a `SampleRequest`. The last line of the output is the `SampleAnswer`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from trainer_runtime.core.answers.sampled import SampleAnswer, SampledText, SampleRequest
from trainer_runtime.core.config.traits import TRAITS
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.manifest import ManifestError, read
from trainer_runtime.core.frameworks.launching import SCRIPT
from trainer_runtime.core.inputs import byte_tokenizer
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.core.records import dataclass
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.checkpoints.restore import load_model
from trainer_runtime.train.loop.drawing import Drawing, TextModel, draw, windowed
from trainer_runtime.train.loop.sampling import trained_model, weights_folder

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
        model = _text_model(_Saved(config, Path(config_path).parent, folder, request, device))
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


@dataclass(frozen=True, slots=True)
class _Saved:
    """What is asked, and where the model is that answers."""

    config: RunConfig
    attempt: Path
    folder: Path
    request: SampleRequest
    device: str


def _text_model(saved: _Saved) -> TextModel:
    """Of the framework that trained it.

    Raises:
        ConfigError: it writes no text, or can't be read.
    """
    config = saved.config
    if config.method == "reward":
        raise ConfigError("a reward model rates texts and writes none")
    traits = TRAITS.get(config.framework)
    if saved.request.chat and traits is not None and not traits.has_chat_template:
        raise ConfigError(f"models of {config.framework} have no chat template: leave `chat` out")
    load = _of_transformers if traits is None else _LOADERS[traits.output]
    return load(saved)


def _of_transformers(saved: _Saved) -> TextModel:
    config, is_program = saved.config, saved.config.script is not None
    place = _model_folder(saved.folder) if is_program else saved.folder
    from trainer_runtime.train.hf.text_model import load_text_model  # which may lack packages

    base = config.model.path or config.model.hub
    tokenizer = place if is_program else _tokenizer_folder(config, saved.attempt, place)
    return load_text_model(place, base, saved.device, chat=saved.request.chat, tokenizer=tokenizer)


def _of_litgpt(saved: _Saved) -> TextModel:
    from trainer_runtime.train.litgpt.text_model import load_text_model

    return load_text_model(saved.folder, saved.config, saved.device)


def _of_own_script(saved: _Saved) -> TextModel:
    """By the model in the run's own script, which somebody may have changed."""
    device = saved.device
    trained = trained_model(Path.cwd(), saved.request.start)
    script: Any = _script()
    model = script.GPT(trained.config.model, trained.config.data.seq_len).eval()
    load_model(model, trained.weights)
    next_logits = windowed(model.to(device), model.seq_len, device)
    return TextModel.of(next_logits, trained.tokenizer)


# By the kind of the framework's checkpoints; others are folders of transformers.
_LOADERS: Mapping[str, Callable[[_Saved], TextModel]] = {
    "nanogpt": _of_own_script,
    "litgpt": _of_litgpt,
    "hf": _of_transformers,
}


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trained_script", SCRIPT)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{SCRIPT} is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "GPT"):
        raise ConfigError(f"{SCRIPT} has no GPT any more")
    return module


def _model_folder(folder: Path) -> Path:
    """Where a program's checkpoint is a folder of transformers.

    Raises:
        ConfigError: it is not.
    """
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (place / "config.json").is_file() and any(place.glob("*.safetensors")):
            return place
    raise ConfigError(
        "the program's checkpoint is not a folder of transformers (config.json, *.safetensors): "
        "only the program knows how to load it"
    )


def _tokenizer_folder(config: RunConfig, attempt: Path, folder: Path) -> Path:
    """Beside the weights, else the one that the run was trained by."""
    if any(folder.glob("tokenizer*")):
        return folder
    if config.data.tokenizer == "byte":
        return attempt / byte_tokenizer.FOLDER
    return Path(config.data.tokenizer)


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

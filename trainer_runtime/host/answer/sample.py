"""Lets a run's model write text, and averages its checkpoints: by a process of the training's
environment that ends with this one.

It runs in the run's folder with the runtime that the run was launched with, which knows how to load
what it saved.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer_runtime.core.answers.averaged import AverageAnswer, AverageRequest
from trainer_runtime.core.answers.sampled import SampleAnswer, SampleRequest
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import DecodingError, Fields, decode_fields
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.host.containers.container import Container, Image
from trainer_runtime.host.environment.training_python import TrainingPython
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.resolved_environment import trainer_environment
from trainer_runtime.host.files.secret_file import secret_values
from trainer_runtime.host.processes.commands import UNANSWERED, ask

_SAMPLE = "trainer_runtime.train.sample"
_AVERAGE = "trainer_runtime.train.sample.average"
_QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "0"}
# Of the process's start, beside the time in which it may generate.
_START_S = 5.0
_LARGEST_OUTPUT_BYTES = 4 << 20
# An engine reports an end by a signal as shells do.
_SIGNALLED = 128


class NotAnsweredError(Exception):
    """The process can't do what it is asked for; the words say why."""


def sample(folder: Path, request: SampleRequest) -> dict[str, Any]:
    """The answer of the model's process, masked; `{"error": WHY}` where there is none."""
    run = RunFolder(folder)
    mask = Mask(secret_values(run).values())
    try:
        fields = _answer(run, _SAMPLE, request.to_dict(), request.within_s)
        answer = SampleAnswer.of(fields).to_dict()
    except (NotAnsweredError, DecodingError) as error:
        return {"error": mask.text(str(error))}
    for text in answer["texts"]:
        text["text"] = mask.text(text["text"])
    return answer


def average(folder: Path, request: AverageRequest) -> dict[str, Any]:
    """The answer of the process that averages checkpoints; `{"error": WHY}` where there is none."""
    run = RunFolder(folder)
    try:
        fields = _answer(run, _AVERAGE, request.to_dict(), request.within_s)
        return AverageAnswer.of(fields).to_dict()
    except (NotAnsweredError, DecodingError) as error:
        return {"error": Mask(secret_values(run).values()).text(str(error))}


def _answer(run: RunFolder, module: str, request: Mapping[str, Any], within_s: float) -> Fields:
    python, path = _python(run)
    # A container sees the run's folder, and not the host's folder for temporary files.
    place = None if python.container is None else run.root
    with tempfile.TemporaryDirectory(prefix=".trainmaster-", dir=place) as folder:
        file = Path(folder, "request.json")
        file.write_text(json.dumps(request))
        command, environment = python.command(["-m", module, str(path), str(file)], _QUIET)
        done = ask(
            command,
            folder=run.root,
            environment=environment,
            timeout_s=within_s + _START_S,
        )
    if done.code in (UNANSWERED, -signal.SIGALRM, _SIGNALLED + signal.SIGALRM):
        raise NotAnsweredError(f"it was not done within {spoken_duration(within_s)}")
    last = done.output[-_LARGEST_OUTPUT_BYTES:].strip().rpartition(b"\n")[2]
    try:
        if done.code == 0:
            return decode_fields(last, module, max_bytes=_LARGEST_OUTPUT_BYTES)
    except DecodingError:
        pass
    raise NotAnsweredError(_why(done.last_words, module.rpartition(".")[2]))


def _why(last: str, name: str) -> str:
    if "No module named" in last and name in last:
        return f"its folder holds the runtime of the version that launched it, without `{name}`"
    return last


def _python(run: RunFolder) -> tuple[TrainingPython, Path]:
    """The environment of the newest attempt that has one, and the path of its configuration."""
    numbers = sorted(
        (int(path.name) for path in run.attempt(1).root.parent.glob("*") if path.name.isdigit()),
        reverse=True,
    )
    for number in numbers:
        attempt = run.attempt(number)
        if attempt.environment.exists() and attempt.config.exists():
            return _of_attempt(run, attempt.config, attempt.environment)
    return TrainingPython(sys.executable), run.config


def _of_attempt(run: RunFolder, path: Path, record: Path) -> tuple[TrainingPython, Path]:
    config = RunConfig.parse(path.read_bytes(), str(path))
    inner = path.relative_to(run.root)
    image = Image.find(record)
    python, environment = trainer_environment(record, config)
    container = None if image is None else Container(image, run.root, config, inner, {})
    return TrainingPython(python, {**environment, **config.env}, container), inner

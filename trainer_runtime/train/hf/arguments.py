"""Reads the arguments of a Trainer, and sets up what Trainer takes from elsewhere."""

from __future__ import annotations

import os
from typing import TypeVar

import torch
import yaml
from transformers import TrainingArguments
from transformers.utils import logging

from trainer_runtime.core.frameworks.accelerate import is_fsdp
from trainer_runtime.core.frameworks.hf import TRAINING_ARGUMENTS, tracking_variables
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.loop.framework_run import FrameworkRun

ArgumentsT = TypeVar("ArgumentsT", bound=TrainingArguments)


def read_arguments(attempt: FrameworkRun, kind: type[ArgumentsT]) -> ArgumentsT:
    """The attempt's training_args.yaml as TrainingArguments or a kind of them, such as SFTConfig.

    Raises:
        ConfigError: the installed version has no such argument, or refuses a value.
    """
    logging.disable_progress_bar()
    os.environ.update(tracking_variables(attempt.config))
    path = attempt.folder / TRAINING_ARGUMENTS
    try:
        arguments = kind(**yaml.safe_load(path.read_text()))
    except (OSError, ValueError, TypeError, ImportError, yaml.YAMLError) as error:
        raise ConfigError(f"{path.name}: {error}") from error
    # The plan gives each rank one device; Trainer would spread a batch over all that it sees.
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1
    if arguments.use_cpu and is_fsdp(attempt.config):
        raise ConfigError("compute.strategy fsdp: on a CPU accelerate would train by ddp instead")
    if arguments.device.type == "cpu":
        _take_the_one_cpu(arguments)
    # Since transformers 5 only the environment sets it.
    arguments.logging_dir = os.environ.get("TENSORBOARD_LOGGING_DIR", arguments.output_dir)
    return arguments


def _take_the_one_cpu(arguments: TrainingArguments) -> None:
    """Accelerate calls the CPU of several ranks `cpu:0`, which torch can't load a file to."""
    arguments.__dict__["_setup_devices"] = torch.device("cpu")
    if arguments.distributed_state is not None:
        arguments.distributed_state.device = torch.device("cpu")

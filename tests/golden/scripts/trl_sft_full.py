"""Fine-tunes a causal language model on texts, conversations or answers to prompts, with TRL.

    python train.py attempts/1/config.json     in the run's folder

Every value comes from the configuration: config.json, and training_args.yaml beside it, which holds
the arguments of TRL's SFTConfig. `train_on_rows` keeps the rows in an exact order, records and
guards the steps, and saves verified checkpoints.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from trainer_runtime.train.loop import startup

startup.begin_imports()  # from here on, since the imports below may hang too
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # else TRL reports each run

from trl import SFTConfig, SFTTrainer

from trainer_runtime.train.data.rows import load_rows
from trainer_runtime.train.hf.arguments import read_arguments
from trainer_runtime.train.hf.linear_loss import loss_of_rows
from trainer_runtime.train.hf.steps import StepTrainer
from trainer_runtime.train.loop.framework_run import FrameworkRun, run
from trainer_runtime.train.trl.inputs import initial_model, load_tokenizer
from trainer_runtime.train.trl.rows import refuse_unusable
from trainer_runtime.train.trl.training import train_on_rows


class CurriculumSFTTrainer(StepTrainer, SFTTrainer):
    """TRL's trainer, which takes steps of several sizes."""


def train(attempt: FrameworkRun) -> None:
    """The loss covers the whole text; for rows with a prompt, only the completion."""
    config = attempt.config
    args = read_arguments(attempt, SFTConfig)
    tokenizer = load_tokenizer(attempt)
    rows, held_out = load_rows(config)
    refuse_unusable(rows, "sft", tokenizer)
    model = initial_model(attempt, args, tokenizer)
    trainer = CurriculumSFTTrainer(
        model=model,
        args=args,
        train_dataset=rows,
        eval_dataset=held_out,
        processing_class=tokenizer,
        compute_loss_func=loss_of_rows(attempt),
    )
    trainer.follow(attempt)
    train_on_rows(trainer, attempt)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", type=Path, default=Path("config.json"))
    return run(train, parser.parse_args().config, method="sft", tuning="full")


if __name__ == "__main__":
    sys.exit(main())

"""Trains a model on rewards for its own completions, with TRL: GRPO.

    python train.py attempts/1/config.json     in the run's folder

Every value comes from the configuration: config.json, and training_args.yaml beside it, which holds
the arguments of TRL's GRPOConfig. `train_on_rows` keeps the rows in an exact order, records and
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

from trl import GRPOConfig, GRPOTrainer

from trainer_runtime.train.data.rows import load_rows
from trainer_runtime.train.hf.arguments import read_arguments
from trainer_runtime.train.loop.framework_run import FrameworkRun, run
from trainer_runtime.train.trl.inputs import initial_model, load_tokenizer
from trainer_runtime.train.trl.reward_functions import REWARD_NAME, reward_functions
from trainer_runtime.train.trl.rows import fitting_prompts, refuse_unusable
from trainer_runtime.train.trl.training import train_on_rows


def train(attempt: FrameworkRun) -> None:
    """The reward functions are those in the run's reward.py."""
    config = attempt.config
    args = read_arguments(attempt, GRPOConfig)
    tokenizer = load_tokenizer(attempt)
    rows, held_out = load_rows(config)
    refuse_unusable(rows, "grpo", tokenizer)
    prompt_length = config.data.seq_len - (args.max_completion_length or 0)
    rows = fitting_prompts(rows, tokenizer, prompt_length)
    held_out = {
        name: fitting_prompts(of, tokenizer, prompt_length) for name, of in held_out.items()
    }
    model = initial_model(attempt, args, tokenizer)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward_functions(Path(REWARD_NAME)),
        args=args,
        train_dataset=rows,
        eval_dataset=held_out,
        processing_class=tokenizer,
    )
    train_on_rows(trainer, attempt, repeats=args.num_generations or 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", type=Path, default=Path("config.json"))
    return run(train, parser.parse_args().config, method="grpo", tuning="full")


if __name__ == "__main__":
    sys.exit(main())

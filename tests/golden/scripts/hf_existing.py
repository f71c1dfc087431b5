"""Trains a language model further, from existing weights, with Hugging Face Trainer.

    python train.py attempts/1/config.json     trains, in the run's folder

Every value comes from the configuration: config.json, and training_args.yaml beside it. The model
and the Trainer stand here, to be read and changed; `TrainmasterCallback` records the steps, guards
them, and has checkpoints saved and verified.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from trainer_runtime.train.loop import startup

startup.begin_imports()  # from here on, since the imports below may hang too

from torch.utils.data import SequentialSampler
from transformers import (
    AutoTokenizer,
    TrainingArguments,
    set_seed,
)

from trainer_runtime.train.hf.arguments import read_arguments
from trainer_runtime.train.hf.callback import TrainmasterCallback
from trainer_runtime.train.hf.checkpoint import refuse_another_strategy
from trainer_runtime.train.hf.documents import collator_of
from trainer_runtime.train.hf.existing_model import load_existing
from trainer_runtime.train.hf.inputs import held_out, tokenizer_source, training_sequences
from trainer_runtime.train.hf.linear_loss import loss_of
from trainer_runtime.train.hf.objectives import training_examples, validation_examples
from trainer_runtime.train.hf.steps import StepTrainer
from trainer_runtime.train.hf.universal import resumed_from
from trainer_runtime.train.loop.framework_run import FrameworkRun, run


def train(attempt: FrameworkRun) -> None:
    """The configured number of optimizer steps, from the start or a checkpoint."""
    arguments = read_arguments(attempt, TrainingArguments)
    set_seed(arguments.seed)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_source(attempt))
    model = load_existing(attempt)
    checkpoint = attempt.choose_checkpoint()
    refuse_another_strategy(checkpoint, attempt.config)
    vocab_size = model.config.get_text_config().vocab_size
    sequences = training_sequences(attempt, vocab_size, checkpoint)
    callback = TrainmasterCallback(attempt, sequences)

    trainer = InOrderTrainer(
        model=model,
        args=arguments,
        data_collator=collator_of(attempt, model),
        train_dataset=training_examples(attempt.config, model, sequences),
        eval_dataset=validation_examples(attempt.config, model, held_out(attempt)),
        processing_class=tokenizer,
        compute_loss_func=loss_of(attempt, model),
        callbacks=[callback],
    )
    callback.attend(trainer)
    trainer.follow(attempt)
    trainer.train(resume_from_checkpoint=resumed_from(trainer, attempt, checkpoint))

    if attempt.is_at_target:
        final = attempt.writing_folder / "final"
        trainer.save_model(str(final))
        attempt.completed(final)


class InOrderTrainer(StepTrainer):
    """Reads the sequences in the data set's own order, as a stream has to be read."""

    def _get_train_sampler(self, *_: Any) -> SequentialSampler:
        sequences: Any = self.train_dataset
        return SequentialSampler(sequences)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", type=Path, default=Path("config.json"))
    return run(train, parser.parse_args().config, weights="existing")


if __name__ == "__main__":
    sys.exit(main())

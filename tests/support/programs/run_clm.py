"""Trains a causal language model on a text file, as users of Hugging Face Trainer write it."""

import sys
from dataclasses import dataclass
from itertools import chain

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)


@dataclass
class Inputs:
    model_name_or_path: str = "model"
    train_file: str = "train.txt"
    validation_file: str = "valid.txt"
    block_size: int = 64


def main():
    inputs, args = HfArgumentParser((Inputs, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(inputs.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(inputs.model_name_or_path)
    files = {"train": inputs.train_file, "validation": inputs.validation_file}
    texts = load_dataset("text", data_files=files)
    rows = texts.map(lambda row: tokenizer(row["text"]), batched=True, remove_columns=["text"])

    def blocks(row):
        tokens = list(chain(*row["input_ids"]))
        starts = range(0, len(tokens) - inputs.block_size + 1, inputs.block_size)
        cut = [tokens[start : start + inputs.block_size] for start in starts]
        return {"input_ids": cut, "labels": [list(one) for one in cut]}

    data = rows.map(blocks, batched=True, remove_columns=rows["train"].column_names)
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        processing_class=tokenizer,
        data_collator=default_data_collator,
    )
    result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.log_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    sys.exit(main())

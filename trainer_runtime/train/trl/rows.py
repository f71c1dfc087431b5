"""Checks before the start whether a data set's rows fit a method of TRL."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from trl.data_utils import is_conversational

from trainer_runtime.core.inputs.row_form import problem_of_row
from trainer_runtime.train.attempt.config import ConfigError


def refuse_unusable(rows: Dataset, method: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Nothing, if the method can read such rows.

    Raises:
        ConfigError: a column is missing, or conversations are to be read without a chat template.
    """
    example: dict[str, Any] = rows[0]
    if (problem := problem_of_row(method, example)) is not None:
        raise ConfigError(f"the first row of the training data: {problem}")
    if is_conversational(example) and not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            "the rows are conversations, and the tokenizer has no chat template to write them by: "
            "name a tokenizer that has one in data.tokenizer, or give plain text"
        )


def fitting_prompts(rows: Dataset, tokenizer: PreTrainedTokenizerBase, at_most: int) -> Dataset:
    """The rows whose prompt has at most `at_most` tokens; the completion needs the rest.

    Raises:
        ConfigError: there are none.
    """
    fitting = rows.filter(lambda row: _prompt_tokens(row["prompt"], tokenizer) <= at_most)
    if not len(fitting):
        raise ConfigError(
            f"no row's prompt has {at_most} tokens or fewer, which max_completion_length leaves of "
            "data.seq_len: make the one smaller or the other larger"
        )
    if left_out := len(rows) - len(fitting):
        print(f"{left_out:,} rows are left out: their prompt has over {at_most} tokens", flush=True)
    return fitting


def _prompt_tokens(prompt: Any, tokenizer: Any) -> int:
    if isinstance(prompt, str):
        return len(tokenizer(prompt)["input_ids"])
    written = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return len(written["input_ids"])

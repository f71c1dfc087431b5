"""Rows as LitGPT finetunes on them: an instruction, perhaps an input, and an output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litgpt.config import Config
from litgpt.prompts import Default, PromptStyle, has_prompt_style, load_prompt_style

from trainer_runtime.core.frameworks import litgpt as written
from trainer_runtime.train.attempt.config import ConfigError, RunConfig


def as_example(row: Mapping[str, Any]) -> dict[str, str]:
    """A row of `instruction` (and `input`) and `output`, `prompt` and `completion`, or `messages`.

    Raises:
        ConfigError: it is none of these, or a conversation of more than one question.
    """
    if row.get("instruction") is not None and row.get("output") is not None:
        return {
            "instruction": row["instruction"],
            "input": row.get("input") or "",
            "output": row["output"],
        }
    if "messages" in row:
        return _of_messages(row["messages"])
    prompt, completion = row.get("prompt"), row.get("completion")
    if isinstance(prompt, list) and isinstance(completion, list):
        return _of_messages([*prompt, *completion])
    if isinstance(prompt, str) and isinstance(completion, str):
        return {"instruction": prompt, "output": completion}
    raise ConfigError(
        "LitGPT finetunes on rows of instruction and output, prompt and completion, or messages; "
        f"these have {', '.join(row)}"
    )


def prompt_style_of(name: str, rows: Any, config: RunConfig) -> PromptStyle:
    """The style of that name. auto: Alpaca's for instructions, none for prompts, which are taken as
    they are, and for messages the model's own."""
    if name != "auto":
        try:
            return PromptStyle.from_name(name)
        except KeyError:
            raise ConfigError(f"LitGPT has no prompt style {name!r}") from None
    if "instruction" in rows.column_names:
        return PromptStyle.from_name("alpaca")
    first = rows[0]
    if "messages" not in first and isinstance(first.get("prompt"), str):
        return Default()
    folder = Path(written.start_folder(config) or ".")
    if has_prompt_style(folder):
        return load_prompt_style(folder)
    return PromptStyle.from_config(Config.from_file(folder / "model_config.yaml"))


def _of_messages(messages: list[Mapping[str, str]]) -> dict[str, str]:
    system = [turn["content"] for turn in messages if turn["role"] == "system"]
    turns = [turn for turn in messages if turn["role"] != "system"]
    if [turn["role"] for turn in turns] != ["user", "assistant"]:
        raise ConfigError(
            "LitGPT finetunes on one question and its answer; a row has "
            f"{len(turns)} messages. Use framework trl for conversations"
        )
    question, answer = (turn["content"] for turn in turns)
    fields = {"instruction": question, "output": answer}
    return {**fields, "sys_prompt": system[0]} if system else fields

"""The row formats that each method accepts, as TRL's trainers and LitGPT read rows.

A kind of rows is named after its method; LitGPT's formats, which differ, are `litgpt sft`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainer_runtime.core.frameworks import framework_of

_PREFERENCE = "`chosen` and `rejected` (`prompt` optional), each a text or a list of messages"
_LITGPT_SFT = "litgpt sft"
ACCEPTED = {
    "pretrain": "`text`",
    _LITGPT_SFT: "`instruction` and `output` (`input` optional), or `prompt` and `completion`, or "
    "`messages` of one question and its answer",
    "sft": "`text`, or `messages`, or `prompt` and `completion`",
    "dpo": _PREFERENCE,
    "reward": _PREFERENCE,
    "kto": "`prompt`, `completion` and `label` (true or false)",
    "grpo": "`prompt`, a text or a list of messages",
}
# By method: any of these sets of columns will do.
_COLUMNS: dict[str, tuple[tuple[str, ...], ...]] = {
    "pretrain": (("text",),),
    _LITGPT_SFT: (("instruction", "output"), ("messages",), ("prompt", "completion")),
    "sft": (("text",), ("messages",), ("prompt", "completion")),
    "dpo": (("chosen", "rejected"),),
    "reward": (("chosen", "rejected"),),
    "kto": (("prompt", "completion", "label"),),
    "grpo": (("prompt",),),
}
_OPTIONAL = {kind: frozenset({"prompt"}) for kind in ("dpo", "reward")}
# The columns of other tools' and methods' rows.
_SHAPES: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"conversations"}),
        "These are ShareGPT's rows: rename `conversations` to `messages`, `from` to `role` "
        "(human: user, gpt: assistant) and `value` to `content`",
    ),
    (
        frozenset({"instruction", "output"}),
        "These are Alpaca's rows: take framework litgpt with method sft, or make `prompt` and "
        "`completion` of them",
    ),
    (frozenset({"messages"}), "These are chats: method sft learns from them"),
    (frozenset({"chosen", "rejected"}), "These are preferences: method dpo learns from them"),
    (frozenset({"prompt", "completion"}), "These are answers: method sft learns from them"),
)
# Those in which a row may have a list of messages, which a chat template writes out.
CHAT_COLUMNS = frozenset({"prompt", "completion", "chosen", "rejected", "messages"})
_BOOLEAN, _PLAIN, _MESSAGES = ("label",), ("text", "instruction", "output"), ("messages",)


def rows_of(framework: str, method: str) -> str:
    """The kind of rows that a framework's method learns from, as the checks below take it."""
    return framework_of(framework).rows.get(method, method)


def learnt_columns(kind: str) -> frozenset[str]:
    """Those that rows of a kind are learnt from, whichever of its choices they are of."""
    columns = frozenset(name for choice in _COLUMNS.get(kind, ()) for name in choice)
    return columns | _OPTIONAL.get(kind, frozenset())


def problem_of_columns(kind: str, columns: Iterable[str]) -> str | None:
    """Why rows with these columns can't be learnt from; None where they can, or nobody knows."""
    there = set(columns)
    choices = _COLUMNS.get(kind, ())
    if not choices or any(there >= set(choice) for choice in choices):
        return None
    missing = min(([name for name in needed if name not in there] for needed in choices), key=len)
    named = " and ".join(f"`{name}`" for name in missing)
    has = ", ".join(f"`{name}`" for name in sorted(there)) or "nothing"
    return f"it has no {named}, but {has}; {kind} takes {ACCEPTED[kind]}{_recognized(there)}"


def _recognized(columns: set[str]) -> str:
    """What rows with these columns are known as, and what to do with them."""
    for needed, hint in _SHAPES:
        if columns >= needed:
            return f". {hint}"
    return ""


def problem_of_row(kind: str, row: Mapping[str, Any]) -> str | None:
    """Why a row can't be learnt from; None where it can."""
    problem = problem_of_columns(kind, row)
    if problem is not None or kind not in _COLUMNS:
        return problem
    choice = next(columns for columns in _COLUMNS[kind] if all(name in row for name in columns))
    optional = [name for name in _OPTIONAL.get(kind, ()) if name in row]
    for name in (*choice, *optional):
        wanted = _expected_value(name, row[name])
        if wanted is not None:
            return f"`{name}` is {_shown(row[name])}, not {wanted}"
    return None


def _expected_value(name: str, value: Any) -> str | None:
    """What should stand under a column instead of `value`."""
    if name in _BOOLEAN:
        return None if isinstance(value, bool) else "true or false"
    if name in _PLAIN:
        return None if isinstance(value, str) else "a text"
    if name in _MESSAGES:
        return None if _are_messages(value) else "a list of messages with `role` and `content`"
    if isinstance(value, str) or _are_messages(value):
        return None
    return "a text or a list of messages with `role` and `content`"


def is_chat(row: Mapping[str, Any]) -> bool:
    """Whether the row is a conversation, as TRL takes it."""
    return any(_are_messages(row[name]) for name in CHAT_COLUMNS if name in row)


def _are_messages(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and all(
            isinstance(message, Mapping) and "role" in message and "content" in message
            for message in value
        )
    )


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"

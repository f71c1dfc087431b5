"""The answer of `trainmaster log`."""

from __future__ import annotations

from trainmaster.words.answers.base import Answer, WholeAnswer


class ActionRow(Answer):
    """One call that acted. `outcome`: `ok`, or an error's code."""

    time: str
    face: str
    client: str
    action: str
    target: dict[str, str]
    outcome: str
    duration_s: float


class ActionLogAnswer(WholeAnswer):
    """Oldest first. `path`: the file that holds them."""

    actions: list[ActionRow]
    path: str

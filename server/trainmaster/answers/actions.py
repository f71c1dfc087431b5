"""The answer of `trainmaster log`."""

from trainmaster.answers.base import Answer, WholeAnswer


class ActionRow(Answer):
    """One call. `outcome`: `ok`, `asked`, or an error's code. `user`: the access token's name."""

    time: str
    face: str
    client: str
    action: str
    target: dict[str, str]
    outcome: str
    duration_s: float
    user: str | None = None


class ActionLogAnswer(WholeAnswer):
    """Oldest first. `path`: the file that holds them."""

    actions: list[ActionRow]
    path: str

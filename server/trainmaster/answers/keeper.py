"""Answers about the keeper and its ticks."""

from typing import ClassVar, Literal

from trainmaster.answers.base import Answer, State, WholeAnswer
from trainmaster.answers.fields import field


class KeeperAnswer(WholeAnswer):
    """`by`: the scheduler that calls `trainmaster tick` for this home; None where none does."""

    documents: ClassVar[frozenset[str]] = frozenset({"wrote"})

    home: str
    installed: bool
    by: Literal["systemd", "cron"] | None = None
    every: str | None = None
    wrote: dict[str, str] | None = field(default=None, description="by path, the text")
    removed: list[str] | None = None
    last_tick_at: str | None = None
    last_tick: Literal["done", "failed", "at work"] | None = None
    failed: dict[str, str] | None = field(
        default=None, description="errors of the last tick, by run or instance"
    )
    overdue: bool | None = None
    put_into_secrets_env: list[str] | None = field(
        default=None, description="variables that a timer does not have"
    )
    hints: list[str] | None = None
    next_step: str | None = None


class TickRow(Answer):
    run_id: str
    state: State
    did: list[str]


class InstanceTickRow(Answer):
    """A rented instance or a provider on which a tick acted."""

    instance: str
    did: list[str]


class TickAnswer(WholeAnswer):
    runs: list[TickRow]
    instances: list[InstanceTickRow] | None = None
    failed: dict[str, str] | None = field(
        default=None, description="errors by run, instance or part (`instances`, `runs`)"
    )
    note: str | None = None

"""What `doctor` and `hosts check` report of each requirement."""

from typing import Literal

from trainmaster.answers.base import Answer
from trainmaster.errors.errors import TrainmasterError


class CheckRow(Answer):
    """`fail`: no training can run; `warn`: some can't or run worse, or an extra is missing.

    `untrusted_found`, `untrusted_remedy`: what the checked host itself reports and advises; an
    error's message may quote it.
    """

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str | None = None
    untrusted_found: str | None = None
    remedy: str | None = None
    untrusted_remedy: str | None = None

    @property
    def all_found(self) -> str:
        """For people: what was seen from here, and what the host reports."""
        return "; ".join(filter(None, (self.found, self.untrusted_found)))


def passed(name: str, found: str, untrusted_found: str | None = None) -> CheckRow:
    return CheckRow(name=name, state="ok", found=found, untrusted_found=untrusted_found)


def warning(name: str, found: str, remedy: str, untrusted_found: str | None = None) -> CheckRow:
    return CheckRow(
        name=name, state="warn", found=found, untrusted_found=untrusted_found, remedy=remedy
    )


def failed(name: str, found: str, remedy: str) -> CheckRow:
    return CheckRow(name=name, state="fail", found=found, remedy=remedy)


def failed_by(name: str, error: TrainmasterError) -> CheckRow:
    return CheckRow(name=name, state="fail", untrusted_found=error.message, remedy=error.fix)


def none_failed(rows: list[CheckRow]) -> bool:
    return all(row.state != "fail" for row in rows)

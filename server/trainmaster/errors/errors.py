"""The error tree; its codes are in `error_codes.CODES`.

    TrainmasterError
    ├── UsageError      an argument or a cursor can't be used as given
    ├── SpecError       the spec can't be read, or is invalid
    ├── PlanError       the spec is valid, but does not work with this data or this machine
    ├── HostError       a host can't be reached, or can't do what is needed
    │   └── CloudError  a cloud provider or Kaggle rejects a request or can't be reached
    ├── SpendError      a cap or a missing approval prevents what costs money or deletes data
    ├── PolicyError     the settings don't allow an agent to do this without a person's approval
    ├── StateError      the state of the run does not allow this
    ├── StorageError    a database or a checkpoint is damaged or can't be used
    └── InternalError   a defect of Trainmaster itself

Each error can be shown as it is: it states what happened, where (`field`), what to do about it
(`fix`), and whether the same call may succeed later (`retryable`). Whether the other side was
reached at all follows from the code (`unanswered`, `unreachable`, `outcome_unknown`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.protocol.text import cleaned
from trainmaster.errors.advice import for_face
from trainmaster.errors.error_codes import CODES, Reach

_LONGEST_MESSAGE = 2000
_LONGEST_FIX = 1000
_LONGEST_FIELD = 200
_MOST_PROBLEMS = 20
_LONGEST_PATH = 300
# What the kernel says of a path: too long, in a loop, of another kind, closed, or on a broken disk.
_OF_PATHS = frozenset(
    {
        errno.EACCES,
        errno.EIO,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENODEV,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.ESTALE,
    }
)
_OF_DISKS = frozenset({errno.EIO, errno.ESTALE})


class TrainmasterError(Exception):
    """An error that a person or an agent can act on.

    `message` says what happened in one or more sentences, `fix` what to do; `field` is the dotted
    path of the offending field, where there is one. All three may quote what came from outside:
    they are cleaned and cut here, wherever the error is shown.
    """

    def __init__(
        self,
        code: str,
        message: str,
        fix: str,
        retryable: bool = False,
        field: str | None = None,
    ) -> None:
        if code not in CODES:
            raise ValueError(f"error code {code!r} is not in error_codes.CODES")
        self.code = code
        self.message = cleaned(message, _LONGEST_MESSAGE)
        self.fix = cleaned(fix, _LONGEST_FIX)
        self.retryable = retryable
        self.field = None if field is None else cleaned(field, _LONGEST_FIELD)
        super().__init__(self.message)

    @property
    def unanswered(self) -> bool:
        """Whether the other side gave no answer: the same request may succeed later."""
        return CODES[self.code].reach is Reach.NO_ANSWER

    @property
    def unreachable(self) -> bool:
        """Whether nothing can be done on the other side now: no answer, or no access."""
        return CODES[self.code].reach in (Reach.NO_ANSWER, Reach.NO_ACCESS)

    @property
    def outcome_unknown(self) -> bool:
        """Whether the request may have taken effect although it failed."""
        return CODES[self.code].reach in (Reach.NO_ANSWER, Reach.UNREADABLE)

    @property
    def remedy(self) -> str:
        """`fix` with its commands as the face that shows it has them."""
        return for_face(self.fix)

    def __str__(self) -> str:
        """The whole error as one line, for clients that show only text."""
        retryable = "yes" if self.retryable else "no"
        return f"{self.code}: {self.message} Fix: {self.remedy} retryable={retryable}"

    def to_dict(self) -> dict[str, Any]:
        """The fields of `error` in every JSON answer."""
        described: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "fix": self.remedy,
            "retryable": self.retryable,
        }
        if self.field is not None:
            described["field"] = self.field
        return described


class UsageError(TrainmasterError):
    """An argument or a cursor can't be used as given."""


class PlanError(TrainmasterError):
    """The spec is valid, but does not work with this data or this machine."""


class HostError(TrainmasterError):
    """A host can't be reached, or can't do what is needed."""


class CloudError(HostError):
    """A cloud provider or Kaggle rejects a request or can't be reached."""


class SpendError(TrainmasterError):
    """A cap or a missing approval prevents what costs money or deletes data."""


class PolicyError(TrainmasterError):
    """The settings don't allow an agent to do this without a person's approval.

    `question`: what a person would allow, as the end of "Allow the agent to …"; None where no
    approval counts.
    """

    question: str | None = None


class StateError(TrainmasterError):
    """The state of the run does not allow this."""


class StorageError(TrainmasterError):
    """A database or a checkpoint is damaged or can't be used."""


class InternalError(TrainmasterError):
    """A defect of Trainmaster itself."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a spec; `field` is its dotted path, empty for the whole spec."""

    code: str
    field: str
    message: str
    fix: str


def wrong_value(field: str, what: str, fix: str) -> Problem:
    """The problem of a field's value; `what` follows the field's name."""
    return Problem("INVALID_VALUE", field, f"`{field}` {what}", fix)


class SpecError(TrainmasterError):
    """The spec can't be read, or is invalid."""

    problems: tuple[Problem, ...] = ()

    @classmethod
    def listing(cls, problems: Sequence[Problem]) -> SpecError:
        """One error for all `problems` (at least one), under the first one's code and field."""
        first, count = problems[0], len(problems)
        problems = [_cleaned(item) for item in problems[:_MOST_PROBLEMS]]
        if count == 1:
            error = cls(first.code, first.message, first.fix, field=first.field or None)
        else:
            messages = " ".join(f"({n}) {item.message}" for n, item in enumerate(problems, 1))
            fixes = " ".join(f"({n}) {item.fix}" for n, item in enumerate(problems, 1))
            message = f"The spec has {count} problems: {messages}"
            error = cls(first.code, message, fixes, field=first.field or None)
        error.problems = tuple(problems)
        return error

    def to_dict(self) -> dict[str, Any]:
        """As for every error, with a list of the problems where there are several."""
        described = super().to_dict()
        if len(self.problems) > 1:
            described["problems"] = [
                {
                    "code": item.code,
                    "field": item.field,
                    "message": item.message,
                    "fix": for_face(item.fix),
                }
                for item in self.problems
            ]
        return described


def unusable_path(error: BaseException | None) -> UsageError | None:
    """The error for a path that leads to nothing that can be used so; None for other failures."""
    if not isinstance(error, OSError) or error.errno not in _OF_PATHS:
        return None
    if error.errno in _OF_DISKS and error.filename is None:
        return None  # a terminal's end is EIO, too
    named = "" if error.filename is None else f": {os.fsdecode(error.filename)[:_LONGEST_PATH]}"
    return UsageError(
        "BAD_ARGUMENT",
        f"A path can't be used: {error.strerror}{named}.",
        "Give the path of a file or folder that this account may use; its parts have at most 255 "
        "bytes each, 4,095 in all.",
    )


def _cleaned(problem: Problem) -> Problem:
    return Problem(
        problem.code,
        cleaned(problem.field, _LONGEST_FIELD),
        cleaned(problem.message, _LONGEST_FIX),
        cleaned(problem.fix, _LONGEST_FIX),
    )

"""The error tree, and the table of error codes.

    TrainmasterError
    ├── UsageError      an argument or a cursor can't be used as given
    ├── SpecError       the spec can't be read, or is invalid
    ├── PlanError       the spec is valid, but does not work with this data or this machine
    ├── HostError       a host can't be reached, or can't do what is needed
    │   └── CloudError  a cloud provider or Kaggle rejects a request or can't be reached
    ├── SpendError      a cap or a missing approval prevents what costs money or deletes data
    ├── StateError      the state of the run does not allow this
    ├── StorageError    a database or a checkpoint is damaged or can't be used
    └── InternalError   a defect of Trainmaster itself

Each error can be shown as it is: it states what happened, where (`field`), what to do about it
(`fix`), and whether the same call may succeed later (`retryable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CODES: dict[str, str] = {
    "UNKNOWN_KEY": "The spec or a --set names a key that does not exist.",
    "WRONG_TYPE": "A value is of another type than the field takes.",
    "INVALID_VALUE": "A value has the right type but is not one that the field accepts.",
    "MISSING_FIELD": "A field that has no default was not given.",
    "DUPLICATE_KEY": "The same key occurs twice in one mapping of the YAML text.",
    "NOT_YET_SUPPORTED": "The field or value is part of the spec, but not implemented yet.",
    "SECRET_IN_SPEC": "A plain variable appears to hold a secret.",
    "SPEC_NOT_READABLE": "The spec can't be opened, or is not YAML of the accepted kind.",
    "SPEC_TOO_LARGE": "The spec is larger than 1 MB.",
    "DATA_MISSING": "The path of a source does not exist or can't be read.",
    "DATA_EMPTY": "The path of a source has no text file with content.",
    "DATA_CHANGED": "The files of a source have changed since the plan was made.",
    "DATA_UNUSABLE": "The data can't be converted to token shards.",
    "DATA_TOO_SHORT": "A source holds too few tokens for training and held-out sequences.",
    "DATA_MALFORMED": "The rows of a source don't match the method or the format.",
    "MODEL_NOT_FOUND": "The path of the spec has no model.",
    "MODEL_UNUSABLE": "A folder lacks files or values of a trainable model.",
    "MODEL_DAMAGED": "Files of a model are truncated, damaged or missing.",
    "TOKENIZER_UNUSABLE": "The tokenizer that the spec names is missing or can't be used.",
    "HUB_NOT_FOUND": "The model hub has no repository of this name.",
    "HUB_GATED": "The model hub requires that the terms of a model are accepted.",
    "HUB_UNREACHABLE": "The model hub can't be reached.",
    "VOCABULARY_TOO_SMALL": "The model's vocabulary has no room for the tokenizer's tokens.",
    "DOES_NOT_FIT": "The training needs more memory than the machine has.",
    "DISK_TOO_SMALL": "Checkpoints and data shards need more space than the disk has.",
    "GPU_NOT_FOUND": "The spec requests a GPU that the machine does not have.",
    "BAD_ARGUMENT": "An argument of a command or tool can't be used as given.",
    "CURSOR_INVALID": "The cursor was not issued by Trainmaster for this run.",
    "IDEMPOTENCY_CONFLICT": "The idempotency key was used before, for another request.",
    "LOG_NOT_READABLE": "A log file can't be read.",
    "HOST_UNKNOWN": "No host of this name is known.",
    "HOST_EXISTS": "A host of this name is known already.",
    "HOST_UNREACHABLE": "The host can't be reached.",
    "LINK_LOST": "The connection to the host was lost during a call.",
    "AUTH_FAILED": "The host refuses the user and the keys that were tried.",
    "KEY_LOCKED": "A private key needs its passphrase.",
    "HOST_KEY_CHANGED": "The host presents another key than the pinned one.",
    "SHELL_UNUSABLE": "The host's login shell can't run commands.",
    "PYTHON_MISSING": "The host has no Python 3.10 or newer.",
    "PACKAGE_MISSING": "A required optional package is not installed.",
    "TRANSPORT_MISSING": "The program or package that a transport needs is not installed.",
    "SECRET_NOT_ALLOWED": "A secret may not leave this machine, by the settings or by its name.",
    "SECRET_MISSING": "A secret that the spec names has no value on this machine.",
    "SECRET_INVALID": "The value of a secret, or the file that holds it, can't be used.",
    "SETTINGS_NOT_READABLE": "The settings file can't be read, or has an invalid value.",
    "UNSAFE_NAME": "A name or path is not safe to use.",
    "DIGEST_MISMATCH": "Transferred bytes don't match their digest.",
    "PLACE_BUSY": "Another upload holds the lock of a folder on the host, and makes no progress.",
    "ROOT_NOT_WRITABLE": "The host's folder for runs can't be written.",
    "DISK_FULL": "The disk is full.",
    "ENVIRONMENT_UNUSABLE": "The Python environment for the training can't be used or built.",
    "ENVIRONMENT_MISMATCH": "The existing environment has other package versions than required.",
    "SUPERVISOR_DID_NOT_START": "The run's supervisor was started but did not respond.",
    "CONDITION_INVALID": "The condition of an alert doesn't parse, or has an unknown name.",
    "DESTINATION_UNKNOWN": "The settings have no destination of this name.",
    "ALERT_EXISTS": "An alert of this name exists already.",
    "ALERT_NOT_FOUND": "No alert and no destination has this name.",
    "CLOUD_UNKNOWN": "No cloud provider has this name.",
    "CLOUD_KEY_MISSING": "No key for the API of a provider is configured.",
    "CLOUD_KEY_REFUSED": "A provider rejects the configured key.",
    "CLOUD_UNREACHABLE": "The API of a provider can't be reached.",
    "CLOUD_BUSY": "The API of a provider limits the rate of requests.",
    "CLOUD_ODD_REPLY": "The API of a provider returned an invalid response.",
    "CLOUD_REFUSED": "A provider rejects a request for another reason.",
    "NO_CAPACITY": "The provider has no such machine available.",
    "OFFER_UNKNOWN": "No offer of this name exists any more.",
    "PRICE_ABOVE_QUOTE": "A machine costs more now than the quote.",
    "BOX_UNKNOWN": "No rented instance has this name or tag.",
    "BOX_DID_NOT_BOOT": "A rented instance was not ready in time, and was released.",
    "BOX_STILL_THERE": "The provider still lists an instance that was released.",
    "LEASE_OVER": "The lease of the instance ends before the training would.",
    "SPEND_CAP": "The request would exceed a spending cap of the settings or the spec.",
    "CONFIRMATION_REQUIRED": "The request costs money or deletes data, and needs an approval.",
    "CONFIRMATION_DECLINED": "A person declined the request.",
    "APPROVAL_UNKNOWN": "No quote with this id waits for approval.",
    "KAGGLE_KEY_MISSING": "No credentials for Kaggle are configured.",
    "KAGGLE_KEY_REFUSED": "Kaggle rejects the credentials.",
    "KAGGLE_UNREACHABLE": "Kaggle can't be reached.",
    "KAGGLE_REFUSED": "Kaggle rejects a push or a data set for another reason.",
    "KERNEL_EXISTS": "A kernel that Trainmaster did not create has the name that the run needs.",
    "QUOTA_SPENT": "The weekly quota of accelerator hours is used up.",
    "INTERNET_NEEDED": "The training needs internet access, which the kernel does not have.",
    "UNSUPPORTED": "The run's host or launcher does not support this.",
    "SCHEDULER_MISSING": "This machine has neither a systemd user instance nor cron.",
    "SCHEDULER_REFUSED": "systemd or cron rejects adding or removing the keeper's entry.",
    "RUN_NOT_FOUND": "No run has this id or name.",
    "RUN_IS_RUNNING": "The run is still running, which this command does not allow.",
    "RUN_ENDED": "The run has ended, which this command does not allow.",
    "FINDING_UNKNOWN": "The run has no finding with this id or code.",
    "PATCH_UNKNOWN": "The finding has no patch of this name.",
    "PATCH_STALE": "The config or checkpoint that a patch was made for has changed.",
    "NOT_MIRRORED": "A checkpoint has not been mirrored yet.",
    "NOT_OWNER": "The process or session belongs to another user of the host.",
    "NO_SUCH_PROCESS": "No process with this pid runs on the host.",
    "TMUX_NOT_FOUND": "tmux on the host has no such session, window or pane.",
    "SCREEN_NOT_FOUND": "screen on the host has no such session or window.",
    "PANE_TAKEN": "The output of the pane is already piped to another file.",
    "NOT_OURS": "The run is attached: Trainmaster monitors it and can't modify it.",
    "OUTPUT_UNKNOWN": "The folder has no training output that can be adopted.",
    "OUTPUT_IS_OURS": "The output folder belongs to a run of Trainmaster.",
    "SHAPE_DIFFERS": "The model of the spec differs from that of the checkpoint.",
    "NO_CHECKPOINT": "The run has no checkpoint that could be used.",
    "CHECKPOINT_DAMAGED": "The requested checkpoint does not match its digests.",
    "DATABASE_DAMAGED": "A database file of the home is damaged.",
    "HOME_BUSY": "Another process holds a lock that this command needs.",
    "HOME_IS_NEWER": "The home folder was written by a newer version of Trainmaster.",
    "TOOK_TOO_LONG": "A call exceeded its time limit; the work that it began continues.",
    "INTERNAL": "A defect of Trainmaster itself.",
}


class TrainmasterError(Exception):
    """An error that a person or an agent can act on.

    `message` says what happened in one or more sentences, `fix` what to do; `field` is the dotted
    path of the offending field, where there is one.
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
            raise ValueError(f"error code {code!r} is not in errors.CODES")
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.retryable = retryable
        self.field = field

    def __str__(self) -> str:
        """The whole error as one line, for clients that show only text."""
        retryable = "yes" if self.retryable else "no"
        return f"{self.code}: {self.message} Fix: {self.fix} retryable={retryable}"

    def to_dict(self) -> dict[str, Any]:
        """The fields of `error` in every JSON answer."""
        described: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "fix": self.fix,
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


class SpecError(TrainmasterError):
    """The spec can't be read, or is invalid."""

    problems: tuple[Problem, ...] = ()

    @classmethod
    def listing(cls, problems: Sequence[Problem]) -> SpecError:
        """One error for all `problems` (at least one), under the first one's code and field."""
        first = problems[0]
        if len(problems) == 1:
            error = cls(first.code, first.message, first.fix, field=first.field or None)
        else:
            messages = " ".join(f"({n}) {item.message}" for n, item in enumerate(problems, 1))
            fixes = " ".join(f"({n}) {item.fix}" for n, item in enumerate(problems, 1))
            message = f"The spec has {len(problems)} problems: {messages}"
            error = cls(first.code, message, fixes, field=first.field or None)
        error.problems = tuple(problems)
        return error

    def to_dict(self) -> dict[str, Any]:
        """As for every error, with a list of the problems where there are several."""
        described = super().to_dict()
        if len(self.problems) > 1:
            described["problems"] = [
                {"code": item.code, "field": item.field, "message": item.message, "fix": item.fix}
                for item in self.problems
            ]
        return described

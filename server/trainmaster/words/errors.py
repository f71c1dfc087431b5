"""The one error tree, and the table of the codes that its members carry.

    TrainmasterError
    ├── UsageError      an argument or a cursor can't be used as given
    ├── SpecError       the spec can't be read, or says something that it may not say
    ├── PlanError       the spec is sound, but this data or this machine can't carry it
    ├── HostError       the machine, its folder or its environment refuses
    │   └── CloudError  who rents out machines, or Kaggle, refuses or can't be reached
    ├── SpendError      a cap, or somebody who has to agree, stands before what costs or destroys
    ├── StateError      the run is not in a state in which this can be done
    ├── StorageError    a database or a checkpoint is not what it should be
    └── InternalError   a defect of Trainmaster itself

Whoever catches one of these can show it as it stands: it says what happened, where (`field`), what
to do about it (`fix`), and whether the same call may succeed later (`retryable`). Whether the other
side was reached at all follows from the code (`unanswered`, `unreachable`, `outcome_unknown`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Reach(Enum):
    """How far a request got before it failed.

    `ANSWERED`: the other side refused it, or it was never sent. `NO_ANSWER`: no connection, or it
    broke. `NO_ACCESS`: keys, credentials or a program for the connection are missing or refused.
    `UNREADABLE`: the reply can't be parsed.
    """

    ANSWERED = "answered"
    NO_ANSWER = "no answer"
    NO_ACCESS = "no access"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Code:
    """One error code: its meaning in a sentence, and how far the request got."""

    meaning: str
    reach: Reach = Reach.ANSWERED


CODES: dict[str, Code] = {
    "UNKNOWN_KEY": Code("The spec or a --set names a key that does not exist."),
    "WRONG_TYPE": Code("A value is of another type than the field takes."),
    "INVALID_VALUE": Code("A value has the right type but is not one that the field accepts."),
    "MISSING_FIELD": Code("A field that has no default was not given."),
    "DUPLICATE_KEY": Code("The same key stands twice in one mapping of the YAML text."),
    "NOT_YET_SUPPORTED": Code("The field or value is part of the spec, but is not built yet."),
    "SECRET_IN_SPEC": Code("Something that looks like a secret stands among the plain variables."),
    "SPEC_NOT_READABLE": Code("The spec can't be opened, or is no YAML of the accepted kind."),
    "SPEC_TOO_LARGE": Code("The spec is larger than 1 MB."),
    "DATA_MISSING": Code("There is nothing to read at a source's path."),
    "DATA_EMPTY": Code("A source's path holds no text file with anything in it."),
    "DATA_CHANGED": Code("A source's files are not any more what the plan was made for."),
    "DATA_UNUSABLE": Code("The data can't be made into token shards here."),
    "DATA_TOO_SHORT": Code("A source holds too few tokens for training and held-out sequences."),
    "DATA_MALFORMED": Code("A source's rows are not what the method or the format takes."),
    "MODEL_NOT_FOUND": Code("There is no model at the path that the spec names."),
    "MODEL_UNUSABLE": Code("A folder lacks what makes it a model that can be trained."),
    "MODEL_DAMAGED": Code("A model's files are cut off, damaged, or not all there."),
    "TOKENIZER_UNUSABLE": Code("There is no tokenizer where one is named, or it can't be used."),
    "HUB_NOT_FOUND": Code("The model hub has nothing under a name."),
    "HUB_GATED": Code("The model hub gives a model only to those who accepted its terms."),
    "HUB_UNREACHABLE": Code("The model hub can't be asked.", Reach.NO_ANSWER),
    "VOCABULARY_TOO_SMALL": Code("The model's vocabulary has no room for the tokenizer's tokens."),
    "DOES_NOT_FIT": Code("The training needs more memory than the machine has."),
    "DISK_TOO_SMALL": Code("Checkpoints and data shards need more room than the disk has."),
    "GPU_NOT_FOUND": Code("The spec asks for a GPU that the machine does not offer."),
    "BAD_ARGUMENT": Code("An argument of a command or tool can't be used as given."),
    "CURSOR_INVALID": Code("The cursor is none that Trainmaster gave out for this."),
    "IDEMPOTENCY_CONFLICT": Code("The idempotency key was used before, for something else."),
    "LOG_NOT_READABLE": Code("A log that is to be read or watched can't be read."),
    "HOST_UNKNOWN": Code("No host of this name is known."),
    "HOST_EXISTS": Code("A host of this name is known already."),
    "HOST_UNREACHABLE": Code("No connection to the host can be made.", Reach.NO_ANSWER),
    "LINK_LOST": Code("The connection to the host broke on the way.", Reach.NO_ANSWER),
    "AUTH_FAILED": Code(
        "The host lets nobody in with the user and keys that were tried.", Reach.NO_ACCESS
    ),
    "KEY_LOCKED": Code("A private key needs its passphrase.", Reach.NO_ACCESS),
    "HOST_KEY_CHANGED": Code(
        "The host shows another key than the one that was pinned.", Reach.NO_ACCESS
    ),
    "SHELL_UNUSABLE": Code("The host's login shell lets no command through."),
    "PYTHON_MISSING": Code("The host has no Python 3.10 or newer."),
    "PACKAGE_MISSING": Code("An optional package that this needs is not installed here."),
    "TRANSPORT_MISSING": Code(
        "The program or package that a transport needs is not installed here.", Reach.NO_ACCESS
    ),
    "SECRET_NOT_ALLOWED": Code(
        "A secret may not leave this machine: by the settings, or by its name."
    ),
    "SECRET_MISSING": Code("A secret that the spec names has no value here."),
    "SECRET_INVALID": Code("A secret's value, or the file that it stands in, can't be used."),
    "SETTINGS_NOT_READABLE": Code("The settings file can't be read, or says what it may not say."),
    "UNSAFE_NAME": Code("A name or path is one that must not be used."),
    "DIGEST_MISMATCH": Code("What arrived is not what was sent."),
    "UPLOAD_LOCKED": Code("Another sender is at the same place of the host, and does not come on."),
    "ROOT_NOT_WRITABLE": Code("The host's folder for runs can't be written."),
    "DISK_FULL": Code("The disk had no room left for what had to be written."),
    "ENVIRONMENT_UNUSABLE": Code("The Python environment for the training can't be used or built."),
    "ENVIRONMENT_MISMATCH": Code(
        "The environment that is to be taken as it is has other packages."
    ),
    "SUPERVISOR_DID_NOT_START": Code("The run's supervisor was started but gave no sign of life."),
    "CONDITION_INVALID": Code(
        "The condition of an alert doesn't parse, or names what there is not."
    ),
    "DESTINATION_UNKNOWN": Code("The settings name no destination like this."),
    "ALERT_EXISTS": Code("An alert of this name is there already."),
    "ALERT_NOT_FOUND": Code("No alert and no destination has this name."),
    "CLOUD_UNKNOWN": Code("No provider of machines has this name."),
    "CLOUD_KEY_MISSING": Code("There is no key for a provider's API.", Reach.NO_ACCESS),
    "CLOUD_KEY_REFUSED": Code(
        "A provider does not accept the key that it was given.", Reach.NO_ACCESS
    ),
    "CLOUD_UNREACHABLE": Code("A provider's API gives no answer.", Reach.NO_ANSWER),
    "CLOUD_BUSY": Code("A provider's API takes no more requests for the moment."),
    "CLOUD_ODD_REPLY": Code(
        "A provider's API answered with something that can't be read.", Reach.UNREADABLE
    ),
    "CLOUD_REFUSED": Code("A provider refuses a request, for a reason of its own."),
    "NO_CAPACITY": Code("The provider has no such machine free any more."),
    "OFFER_UNKNOWN": Code("No offer of this name is there, or no longer."),
    "PRICE_ABOVE_QUOTE": Code("A machine costs more by now than what was quoted."),
    "BOX_UNKNOWN": Code("No rented box has this name or tag."),
    "BOX_DID_NOT_BOOT": Code("A rented box was not ready in time, and was given back."),
    "BOX_STILL_THERE": Code("The provider goes on listing a box that was given back."),
    "LEASE_OVER": Code("The box's lease ends before the training could."),
    "SPEND_CAP": Code("It would cost more than a cap in the settings or the spec allows."),
    "CONFIRMATION_REQUIRED": Code(
        "It costs money or destroys something, and nobody has agreed yet."
    ),
    "CONFIRMATION_DECLINED": Code("The person who was asked did not agree."),
    "APPROVAL_UNKNOWN": Code("No quote of this id waits for an approval."),
    "KAGGLE_KEY_MISSING": Code("There are no credentials for Kaggle.", Reach.NO_ACCESS),
    "KAGGLE_KEY_REFUSED": Code("Kaggle does not accept the credentials.", Reach.NO_ACCESS),
    "KAGGLE_UNREACHABLE": Code("Kaggle gives no answer.", Reach.NO_ANSWER),
    "KAGGLE_REFUSED": Code("Kaggle refuses a push or a data set, for a reason of its own."),
    "KERNEL_EXISTS": Code("A kernel of another making has the name that the run needs."),
    "QUOTA_SPENT": Code("The week's quota of accelerator hours is spent."),
    "INTERNET_NEEDED": Code("The training needs the internet, which the kernel is not given."),
    "UNSUPPORTED": Code("The place where the run stays has no way to do this."),
    "SCHEDULER_MISSING": Code("This machine has neither a systemd of the user's nor cron."),
    "SCHEDULER_REFUSED": Code("systemd or cron does not take, or give back, the keeper's entry."),
    "RUN_NOT_FOUND": Code("No run has this id or name."),
    "RUN_IS_RUNNING": Code("The run is still running, which this command does not allow."),
    "RUN_ENDED": Code("The run has ended, which this command does not allow."),
    "FINDING_UNKNOWN": Code("The run has no finding of this id or code."),
    "PATCH_UNKNOWN": Code("The finding has no patch of this name, or none at all."),
    "PATCH_STALE": Code("A patch was made for what is no longer so: settings, or a checkpoint."),
    "NOT_MIRRORED": Code("A checkpoint that is to be brought here has not arrived yet."),
    "NOT_OWNER": Code("The process or session belongs to somebody else on its machine."),
    "NO_SUCH_PROCESS": Code("No process of this number runs on the host."),
    "TMUX_NOT_FOUND": Code("tmux on the host has no such session, window or pane."),
    "SCREEN_NOT_FOUND": Code("screen on the host has no such session or window."),
    "PANE_TAKEN": Code("Somebody else has a pane's output written to a file already."),
    "ATTACHED_READ_ONLY": Code("The training was started by others: it is only watched."),
    "OUTPUT_UNKNOWN": Code("The folder holds no training's output that can be taken over."),
    "OUTPUT_IS_OURS": Code("The output folder belongs to a run of Trainmaster."),
    "SHAPE_DIFFERS": Code("The spec describes another model than the checkpoint holds."),
    "NO_CHECKPOINT": Code("The run has no checkpoint that could be used."),
    "CHECKPOINT_DAMAGED": Code("The checkpoint asked for does not match its digests."),
    "DATABASE_DAMAGED": Code("A database file of the home is no database any more."),
    "HOME_BUSY": Code("Another process holds what this command needs for itself."),
    "HOME_IS_NEWER": Code("The home folder was written by a newer version of Trainmaster."),
    "TIMEOUT": Code("A call did not end within its bound; what it began goes on.", Reach.NO_ANSWER),
    "INTERNAL": Code("A defect of Trainmaster itself."),
}


class TrainmasterError(Exception):
    """Something went wrong that a person or an agent can act on.

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

    def __str__(self) -> str:
        """The whole error as one line: what a client that drops structure still shows."""
        retryable = "yes" if self.retryable else "no"
        return f"{self.code}: {self.message} Fix: {self.fix} retryable={retryable}"

    def to_dict(self) -> dict[str, Any]:
        """The fields that stand under `error` in every JSON answer."""
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
    """The spec is sound, but this data or this machine can't carry it."""


class HostError(TrainmasterError):
    """The machine, its folder or its environment refuses."""


class CloudError(HostError):
    """Who rents out machines, or Kaggle, refuses or can't be reached."""


class SpendError(TrainmasterError):
    """A cap, or somebody who has to agree, stands before what costs money or destroys."""


class StateError(TrainmasterError):
    """The run is not in a state in which this can be done."""


class StorageError(TrainmasterError):
    """A database or a checkpoint is not what it should be."""


class InternalError(TrainmasterError):
    """A defect of Trainmaster itself."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a spec; `field` is its dotted path, empty for the whole."""

    code: str
    field: str
    message: str
    fix: str


class SpecError(TrainmasterError):
    """The spec can't be read, or says something that it may not say."""

    problems: tuple[Problem, ...] = ()

    @classmethod
    def listing(cls, problems: Sequence[Problem]) -> SpecError:
        """One error for all `problems` (at least one), under the first one's code and field."""
        first = problems[0]
        if len(problems) == 1:
            error = cls(first.code, first.message, first.fix, field=first.field or None)
        else:
            told = " ".join(f"({n}) {item.message}" for n, item in enumerate(problems, 1))
            fixes = " ".join(f"({n}) {item.fix}" for n, item in enumerate(problems, 1))
            message = f"{len(problems)} things are wrong with the spec: {told}"
            error = cls(first.code, message, fixes, field=first.field or None)
        error.problems = tuple(problems)
        return error

    def to_dict(self) -> dict[str, Any]:
        """As for every error, with each problem by itself where there are several."""
        described = super().to_dict()
        if len(self.problems) > 1:
            described["problems"] = [
                {"code": item.code, "field": item.field, "message": item.message, "fix": item.fix}
                for item in self.problems
            ]
        return described

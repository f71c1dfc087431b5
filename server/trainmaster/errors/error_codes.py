"""The table of error codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
    "UNKNOWN_KEY": Code("The spec or a `--set` names a key that does not exist."),
    "WRONG_TYPE": Code("A value is of another type than the field takes."),
    "INVALID_VALUE": Code("A value has the right type but is not one that the field accepts."),
    "MISSING_FIELD": Code("A field that has no default was not given."),
    "DUPLICATE_KEY": Code("The same key occurs twice in one mapping of the YAML text."),
    "NOT_YET_SUPPORTED": Code("The field or value is part of the spec, but not implemented yet."),
    "SECRET_IN_SPEC": Code("A plain variable appears to hold a secret."),
    "SPEC_NOT_READABLE": Code("The spec can't be opened, or is not YAML of the accepted kind."),
    "SPEC_TOO_LARGE": Code("The spec is larger than 1 MB."),
    "DATA_MISSING": Code("The path of a source does not exist or can't be read."),
    "DATA_EMPTY": Code("The path of a source has no text file with content."),
    "DATA_CHANGED": Code("The files of a source have changed since the plan was made."),
    "DATA_UNUSABLE": Code("The data can't be converted to token shards."),
    "DATA_TOO_SHORT": Code("A source holds too few tokens for training and held-out sequences."),
    "DATA_MALFORMED": Code("The rows of a source don't match the method or the format."),
    "CODE_MISSING": Code("The folder of a program can't be read, or git can't list it."),
    "CODE_TOO_LARGE": Code("A program's folder is larger than the settings let travel."),
    "CODE_INCOMPLETE": Code("A program's folder holds LFS pointers or submodules without content."),
    "COMMAND_NOT_FOUND": Code("The command of a program is not there."),
    "MODEL_NOT_FOUND": Code("The path that the spec names holds no model."),
    "MODEL_UNUSABLE": Code("A folder lacks files or values of a trainable model."),
    "MODEL_DAMAGED": Code("Files of a model are truncated, damaged or missing."),
    "TOKENIZER_UNUSABLE": Code("The tokenizer that the spec names is missing or can't be used."),
    "HUB_NOT_FOUND": Code("The model hub has no repository of this name."),
    "HUB_GATED": Code("The model hub requires that the terms of a model are accepted first."),
    "HUB_UNREACHABLE": Code("The model hub can't be reached.", Reach.NO_ANSWER),
    "STORE_NOT_FOUND": Code("An object store has no such bucket, or no object under this key."),
    "STORE_REFUSED": Code("An object store refuses the keys of a run."),
    "VOCABULARY_TOO_SMALL": Code("The model's vocabulary has no room for the tokenizer's tokens."),
    "DOES_NOT_FIT": Code("The training needs more memory than the machine has."),
    "NOT_TRACED": Code("A step of the training can't be traced for its memory."),
    "REHEARSAL_TOO_LONG": Code(
        "The training, or its limit of time, is no longer than a rehearsal."
    ),
    "DISK_TOO_SMALL": Code("Checkpoints and data shards need more space than the disk has."),
    "GPU_NOT_FOUND": Code("The spec requests a GPU that the machine does not have."),
    "NODES_DIFFER": Code("The hosts of one training have different GPUs, versions or clocks."),
    "NODES_UNREACHABLE": Code("The hosts of one training can't connect to one another."),
    "BAD_ARGUMENT": Code("An argument of a command or tool can't be used as given."),
    "AGENT_CONFIG_UNREADABLE": Code("The configuration of an agent's program can't be changed."),
    "CURSOR_INVALID": Code("The cursor was not issued by Trainmaster for this run."),
    "IDEMPOTENCY_CONFLICT": Code("The idempotency key was used before, for another request."),
    "LOG_NOT_READABLE": Code("A log file can't be read."),
    "KIND_INVALID": Code("A row of the user's own kinds of failures can't be used."),
    "PATTERN_INVALID": Code("A pattern for a log's lines has no or unknown placeholders."),
    "PATTERN_TOO_SLOW": Code("A regular expression for a log's lines may take without bound."),
    "PATTERN_MATCHES_NOTHING": Code("A pattern matches no line of the log that it was given for."),
    "READ_TOO_LONG": Code("Reading files takes longer, or more bytes, than one call may."),
    "READS_AT_ONCE": Code("Other calls of the same caller, or of all, read files already."),
    "METRICS_BEING_REBUILT": Code("The metrics database is being rebuilt from the mirror."),
    "HOST_UNKNOWN": Code("No host of this name is known."),
    "HOST_EXISTS": Code("A host of this name is known already."),
    "HOST_UNREACHABLE": Code("The host can't be reached.", Reach.NO_ANSWER),
    "HOST_DATA_REFUSED": Code(
        "A host sent data that is invalid or beyond the limits.", Reach.UNREADABLE
    ),
    "HOST_CALL_FAILED": Code("A command of the runtime failed on the host."),
    "LINK_LOST": Code("The connection to the host was lost during a call.", Reach.NO_ANSWER),
    "AUTH_FAILED": Code("The host refuses the user and the keys that were tried.", Reach.NO_ACCESS),
    "KEY_LOCKED": Code("A private key needs its passphrase.", Reach.NO_ACCESS),
    "HOST_KEY_CHANGED": Code(
        "The host presents a key other than the pinned or known one.", Reach.NO_ACCESS
    ),
    "SHELL_UNUSABLE": Code("The host's login shell can't run commands."),
    "PYTHON_MISSING": Code("The host has no Python 3.10 or newer."),
    "PACKAGE_MISSING": Code("A required optional package is not installed."),
    "TRANSPORT_MISSING": Code(
        "The program or package that a transport needs is not installed.", Reach.NO_ACCESS
    ),
    "SECRET_NOT_ALLOWED": Code(
        "The settings, or the name of a secret, forbid that it leaves this machine."
    ),
    "SECRET_MISSING": Code("A secret that the spec names has no value on this machine."),
    "SECRET_INVALID": Code("The value of a secret, or the file that holds it, can't be used."),
    "SETTINGS_NOT_READABLE": Code("The settings file can't be read, or has an invalid value."),
    "POLICY_FILE": Code("The agent's policy does not let this file or folder be read or sent."),
    "POLICY_HOST": Code("The agent's policy does not let an agent use this host."),
    "POLICY_SECRET": Code("The agent's policy does not let this secret go to this host."),
    "POLICY_ENDPOINT": Code("The agent's policy does not let this address be asked."),
    "NOT_REHEARSED": Code("An agent's launch of over a GPU-hour follows no rehearsal that passed."),
    "POLICY_PROGRAM": Code("The spec brings code to this machine that no person has trusted."),
    "TOKEN_EXISTS": Code("An access token of this name exists already."),
    "TOKEN_UNKNOWN": Code("No access token has this name."),
    "TOKENS_NOT_READABLE": Code("The file of access tokens is damaged, or open to other users."),
    "TOKEN_REFUSED": Code(
        "A request over HTTP has no access token, or one that is unknown, expired or for another "
        "server."
    ),
    "ROLE_TOO_LOW": Code("The role of an access token does not include what was asked for."),
    "ORIGIN_REFUSED": Code("A request over HTTP names another server, or comes from a web page."),
    "CALL_LIMIT": Code(
        "A user made more requests in a minute, or has more under way, than is allowed."
    ),
    "SERVER_BUSY": Code(
        "The server has as much to do as it can take; the same again later counts."
    ),
    "AUTHORIZATION_UNREACHABLE": Code(
        "The authorization server can't be reached, or its reply can't be read.", Reach.NO_ANSWER
    ),
    "SERVER_NOT_PROTECTED": Code("The server would be open to others without authorization."),
    "ADDRESS_UNUSABLE": Code("The server can't listen on this address and port."),
    "UNSAFE_NAME": Code("A name or path is not safe to use."),
    "DIGEST_MISMATCH": Code("Transferred bytes don't match their digest."),
    "UPLOAD_LOCKED": Code(
        "Another upload holds the lock of a folder on the host, and makes no progress."
    ),
    "FOLDER_NOT_EMPTY": Code("The folder for a model holds other files."),
    "ROOT_NOT_WRITABLE": Code("The host's folder for runs can't be written."),
    "DISK_FULL": Code("The disk is full."),
    "COPIES_FULL": Code("Downloads and copies of checkpoints have reached the quota of the home."),
    "NO_INODES": Code("The file system of the home takes no more files, whatever their size."),
    "ENVIRONMENT_UNUSABLE": Code("The Python environment for the training can't be used or built."),
    "ENVIRONMENT_MISMATCH": Code(
        "The existing environment has other package versions than required."
    ),
    "CONTAINER_ENGINE_MISSING": Code("The host has no Docker or Podman to run a container."),
    "IMAGE_UNUSABLE": Code("The image of a container can't be pulled, or nothing can train in it."),
    "SUPERVISOR_DID_NOT_START": Code("The run's supervisor was started but did not respond."),
    "SLURM_MISSING": Code("The host has none of Slurm's programs on its search path."),
    "SLURM_UNREACHABLE": Code("Slurm's controller does not answer."),
    "SLURM_FAILED": Code("One of Slurm's programs failed."),
    "JOB_REFUSED": Code("Slurm does not accept the run's job."),
    "FOLDER_NOT_SHARED": Code("Compute nodes of the cluster do not have the host's root."),
    "PARTITION_UNKNOWN": Code("The cluster has no partition of this name, or none that is up."),
    "PARTITION_TOO_SHORT": Code("A partition's time limit is shorter than the training needs."),
    "PARTITION_TOO_SMALL": Code("A partition gives a job fewer nodes than the spec asks for."),
    "ACCOUNT_REFUSED": Code("A partition does not let this account use it."),
    "HOURS_USED_UP": Code("An account or a QOS has used all its hours at a cluster."),
    "CONDITION_INVALID": Code("The condition of an alert doesn't parse, or has an unknown name."),
    "DESTINATION_UNKNOWN": Code("The settings have no destination of this name."),
    "ALERT_EXISTS": Code("An alert of this name exists already."),
    "ALERT_NOT_FOUND": Code("No alert and no destination has this name."),
    "CLOUD_UNKNOWN": Code("No cloud provider has this name."),
    "CLOUD_KEY_MISSING": Code("No key for the API of a provider is configured.", Reach.NO_ACCESS),
    "CLOUD_KEY_REFUSED": Code("A provider rejects the configured key.", Reach.NO_ACCESS),
    "CLOUD_UNREACHABLE": Code("The API of a provider can't be reached.", Reach.NO_ANSWER),
    "RATE_LIMITED": Code("A provider's API accepts no requests for the moment."),
    "INVALID_RESPONSE": Code(
        "A provider's API returned a reply that can't be read.", Reach.UNREADABLE
    ),
    "CLOUD_REFUSED": Code("A provider rejects a request for another reason."),
    "NO_CAPACITY": Code("The provider has no such machine available."),
    "OFFER_UNKNOWN": Code("No offer of this name exists any more."),
    "PRICE_ABOVE_QUOTE": Code("A machine costs more now than the quote."),
    "VOLUME_UNSUPPORTED": Code("No network volume can be attached to this offer."),
    "VOLUME_IN_USE": Code("An instance uses the volume."),
    "VOLUME_HOLDS_CHECKPOINTS": Code("The volume holds checkpoints of runs that are unfinished."),
    "INSTANCE_UNKNOWN": Code("No rented instance has this name or tag."),
    "INSTANCE_DID_NOT_BOOT": Code("A rented instance was not ready in time, and was released."),
    "INSTANCE_STILL_LISTED": Code("The provider still lists an instance after its release."),
    "LEASE_OVER": Code("The instance's lease ends before the training would."),
    "SPEND_CAP": Code("The request would exceed a spending cap of the settings or the spec."),
    "CONFIRMATION_REQUIRED": Code(
        "The request costs money, deletes data or goes beyond the agent's policy, and needs a "
        "person's approval."
    ),
    "CONFIRMATION_DECLINED": Code("A person declined the request."),
    "APPROVAL_UNKNOWN": Code("No quote with this id waits for approval."),
    "KAGGLE_KEY_MISSING": Code("No credentials for Kaggle are configured.", Reach.NO_ACCESS),
    "KAGGLE_KEY_REFUSED": Code("Kaggle rejects the credentials.", Reach.NO_ACCESS),
    "KAGGLE_UNREACHABLE": Code("Kaggle can't be reached.", Reach.NO_ANSWER),
    "KAGGLE_REFUSED": Code("Kaggle rejects a push or a data set for another reason."),
    "KERNEL_EXISTS": Code(
        "A kernel that Trainmaster did not create has the name that the run needs."
    ),
    "QUOTA_SPENT": Code("The weekly quota of accelerator hours is used up."),
    "INTERNET_NEEDED": Code("The training needs internet access, which the kernel does not have."),
    "UNSUPPORTED": Code("The run's host or launcher does not support this."),
    "SCHEDULER_MISSING": Code("This machine has neither a systemd user instance nor cron."),
    "SCHEDULER_REFUSED": Code("systemd or cron rejects adding or removing the keeper's entry."),
    "RUN_NOT_FOUND": Code("No run has this id or name."),
    "RUN_AMBIGUOUS": Code("Several runs were launched under this name; an id says which."),
    "RUN_IS_RUNNING": Code("The run is still running, which this command does not allow."),
    "RUN_ENDED": Code("The run has ended, which this command does not allow."),
    "FINDING_UNKNOWN": Code("The run has no finding with this id or code."),
    "PATCH_UNKNOWN": Code("The finding has no patch of this name."),
    "PATCH_STALE": Code("The config or checkpoint that a patch was made for has changed."),
    "NOT_MIRRORED": Code("A checkpoint has not been mirrored yet."),
    "NOT_OWNER": Code("The process or session belongs to another user of the host."),
    "NO_SUCH_PROCESS": Code("No process with this pid runs on the host."),
    "TMUX_NOT_FOUND": Code("tmux on the host has no such session, window or pane."),
    "SCREEN_NOT_FOUND": Code("screen on the host has no such session or window."),
    "PANE_TAKEN": Code("The output of the pane is already piped to another file."),
    "ATTACHED_READ_ONLY": Code("The run is attached: Trainmaster monitors it and can't modify it."),
    "OUTPUT_UNKNOWN": Code("The folder has no training output that can be adopted."),
    "OUTPUT_IS_OURS": Code("The output folder belongs to a run of Trainmaster."),
    "SHAPE_DIFFERS": Code("The model of the spec differs from that of the checkpoint."),
    "NO_DATA_CARD": Code(
        "The run has no data card: its data is not prepared, or it is a program's."
    ),
    "NO_CHECKPOINT": Code("The run has no checkpoint that could be used."),
    "NOT_SAMPLED": Code("The model of the run can't be made to write text."),
    "NOT_PROFILED": Code("The run's trainer can't be profiled now, or has not answered in time."),
    "NOT_AVERAGED": Code("The checkpoints can't be averaged."),
    "CHECKPOINT_DAMAGED": Code("The requested checkpoint does not match its digests."),
    "DATABASE_LOCKED": Code("Another process has held a database of the home for too long."),
    "DATABASE_DAMAGED": Code("A database file of the home is damaged, missing or empty."),
    "HOME_BUSY": Code("Another process holds a lock that this command needs."),
    "HOME_NOT_PRIVATE": Code(
        "The home, or a folder above it, belongs to another user or can be written by others."
    ),
    "HOME_IS_NEWER": Code("The home folder was written by a newer version of Trainmaster."),
    "HOME_OF_OTHER_VERSION": Code(
        "The home folder was written by a version whose records this one can't read."
    ),
    "TIMEOUT": Code(
        "A call exceeded its time limit; the work that it began continues.", Reach.NO_ANSWER
    ),
    "INTERNAL": Code("A defect of Trainmaster itself."),
}

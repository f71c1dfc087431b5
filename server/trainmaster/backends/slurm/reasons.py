"""Slurm's words for why a job waits, each with what it means and what would help."""

from __future__ import annotations

from trainer_runtime.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Pending:
    """`code` is the table's own name for it. `meaning` and `remedy` are sentences."""

    code: str
    meaning: str
    remedy: str


_WAIT = "It starts by itself."
_ASK = "Ask those who run the cluster."
_SHORTER = "A shorter time limit or fewer GPUs start sooner."
_OPTIONS = "Stop the run, add the host again with other options, and launch it there."
_UNKNOWN = Pending("slurm_other", "Slurm gives a reason that is not in our table.", _ASK)
_TABLE = {
    "None": Pending("slurm_queued", "Slurm has not considered the job yet.", _WAIT),
    "Priority": Pending("slurm_priority", "Jobs of higher priority are before it.", _SHORTER),
    "Resources": Pending("slurm_resources", "It is next, and waits for free nodes.", _SHORTER),
    "Dependency": Pending("slurm_dependency", "The run's job before it has not ended yet.", _WAIT),
    "BeginTime": Pending("slurm_begin_time", "Its earliest start has not come yet.", _WAIT),
    "Licenses": Pending("slurm_licenses", "It waits for a license.", _WAIT),
    "Cleaning": Pending("slurm_cleaning", "Its node is being cleaned up.", _WAIT),
    "Prolog": Pending("slurm_prolog", "Its node is being prepared.", _WAIT),
    "Reservation": Pending("slurm_reservation", "It waits for its reservation.", _WAIT),
    "ReqNodeNotAvail": Pending(
        "slurm_node_unavailable", "A node that it needs is down, drained or reserved.", _ASK
    ),
    "NodeDown": Pending("slurm_node_down", "A node that it needs is down.", _ASK),
    "BadConstraints": Pending(
        "slurm_bad_constraints", "No node has what the job asks for.", _OPTIONS
    ),
    "PartitionDown": Pending("slurm_partition_down", "Its partition takes no jobs now.", _ASK),
    "PartitionInactive": Pending("slurm_partition_down", "Its partition takes no jobs now.", _ASK),
    "PartitionTimeLimit": Pending(
        "slurm_partition_time_limit", "It asks for more time than its partition gives.", _OPTIONS
    ),
    "PartitionNodeLimit": Pending(
        "slurm_partition_node_limit", "Its partition has not as many nodes as it needs.", _OPTIONS
    ),
    "PartitionConfig": Pending(
        "slurm_partition_config", "It asks for what its partition does not give.", _OPTIONS
    ),
    "AccountNotAllowed": Pending(
        "slurm_account_not_allowed", "Its account may not use the partition.", _OPTIONS
    ),
    "QOSNotAllowed": Pending(
        "slurm_qos_not_allowed", "Its QOS may not be used in the partition.", _OPTIONS
    ),
    "InvalidAccount": Pending("slurm_invalid_account", "Its account is not valid.", _OPTIONS),
    "InvalidQOS": Pending("slurm_invalid_qos", "Its QOS is not valid.", _OPTIONS),
    "JobArrayTaskLimit": Pending(
        "slurm_array_limit", "As many runs of its array train as may at a time.", _WAIT
    ),
    "JobHeldUser": Pending(
        "slurm_held", "Somebody with your account has held it.", "`scontrol release` lets it go."
    ),
    "JobHeldAdmin": Pending("slurm_held_by_admin", "An administrator has held it.", _ASK),
    "JobLaunchFailure": Pending("slurm_launch_failure", "Slurm could not launch it.", _ASK),
    "launch failed requeued held": Pending(
        "slurm_launch_failure", "Slurm could not launch it, and holds it.", _ASK
    ),
}
# By what a longer reason begins with: Slurm has dozens, for each limit of each level.
_BEGINNINGS = (
    ("AssocGrp", Pending("slurm_account_limit", "A limit of your account is reached.", _ASK)),
    ("AssocMax", Pending("slurm_account_limit", "A limit of your account is reached.", _ASK)),
    ("MaxJobs", Pending("slurm_account_limit", "As many jobs of yours run as may.", _WAIT)),
    ("QOSGrp", Pending("slurm_qos_limit", "A limit of the QOS is reached.", _WAIT)),
    ("QOSMax", Pending("slurm_qos_limit", "The job is beyond a limit of the QOS.", _OPTIONS)),
    ("ReqNodeNotAvail", _TABLE["ReqNodeNotAvail"]),
    ("Nodes required for job are DOWN", _TABLE["ReqNodeNotAvail"]),
    ("Job's account", _TABLE["AccountNotAllowed"]),
    ("Job's QOS", _TABLE["QOSNotAllowed"]),
)


def pending(word: str | None) -> Pending:
    """What a reason of Slurm's means; `word`: None for none given."""
    text = (word or "None").strip("() ")
    found = _TABLE.get(text)
    if found is not None:
        return found
    return next((why for begin, why in _BEGINNINGS if text.startswith(begin)), _UNKNOWN)


def all_reasons() -> list[Pending]:
    """Each once, for the docs."""
    known = [*_TABLE.values(), *(why for _, why in _BEGINNINGS), _UNKNOWN]
    return list({why.code: why for why in known}.values())

"""Slurm's words for why a job waits, each with what it means and what would help."""

from __future__ import annotations

import re

from trainer_runtime.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Pending:
    """`code` is the table's own name for it. `meaning` and `remedy` are sentences."""

    code: str
    meaning: str
    remedy: str

    def remedy_for(self, gpus: int) -> str:
        """For a job that asks for so many."""
        return self.remedy if gpus else _WITHOUT_GPUS.get(self.remedy, self.remedy)

    @property
    def never_begins(self) -> bool:
        """Whether the job has to be replaced by another one."""
        return self.remedy.startswith(_STOP)


_STOP = "Stop the run, "
_WAIT = "It starts by itself."
_ASK = "Ask those who run the cluster."
_SHORTER = "Fewer GPUs (`compute.gpus`), or a host with a shorter `hosts add --time`, start sooner."
_SHORTER_ALONE = "A host with a shorter `hosts add --time` starts sooner."
_OPTIONS = f"{_STOP}add the host again with other options, and launch it there."
_OTHER_QOS = "launch it at a host that was added with another `--qos` or `--account`"
_SMALLER = (
    f"{_STOP}and launch it with fewer GPUs (`--set compute.gpus=1`) or nodes; or {_OTHER_QOS}."
)
_SMALLER_ALONE = f"{_STOP}and launch it with fewer nodes; or {_OTHER_QOS}."
_WITHOUT_GPUS = {_SHORTER: _SHORTER_ALONE, _SMALLER: _SMALLER_ALONE}
_BRIEFER = (
    f"{_STOP}add the host again with a shorter `--time`, such as 12h, and launch it there: "
    "what does not fit into one job continues in the next."
)
_UNKNOWN = Pending("slurm_other", "Slurm gives a reason that is not in our table.", _ASK)
_TABLE = {
    "None": Pending("slurm_queued", "Slurm has not said why yet.", _WAIT),
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
# By what a longer reason begins with.
_BEGINNINGS = (
    ("ReqNodeNotAvail", _TABLE["ReqNodeNotAvail"]),
    ("Nodes required for job are DOWN", _TABLE["ReqNodeNotAvail"]),
    ("Job's account", _TABLE["AccountNotAllowed"]),
    ("Job's QOS", _TABLE["QOSNotAllowed"]),
)
_TOO_LONG = Pending(
    "slurm_too_long", "It asks for more time than its account or QOS gives a job.", _BRIEFER
)
_TOO_LARGE = Pending(
    "slurm_too_large", "It asks for more than its account or QOS gives a job.", _SMALLER
)
_TOO_SMALL = Pending(
    "slurm_too_small", "It asks for less than its QOS is for.", f"{_STOP}and {_OTHER_QOS}."
)
_NO_HOURS = Pending(
    "slurm_no_hours",
    "The hours of its account or QOS are used up.",
    f"Ask those who run the cluster for more; or stop the run, and {_OTHER_QOS}.",
)
_OWN = Pending("slurm_own_limit", "Your other jobs use as much as may be used at a time.", _WAIT)
_GROUP = Pending(
    "slurm_group_limit", "Jobs of its account or QOS use as much as may be used at a time.", _WAIT
)
# Slurm has over a hundred words for limits, of each resource at each level: `AssocGrpGRESMinutes`,
# `QOSMaxCpuPerUserLimit`. The first of these that is found in one decides.
_LIMITS = (
    (r"(Assoc|QOS)Max\w*(WallDuration|Minutes)PerJob|(Association|QOS)TimeLimit", _TOO_LONG),
    (r"(Assoc|QOS)Max\w*(PerJob|PerNode)", _TOO_LARGE),
    (r"QOSMin", _TOO_SMALL),
    (r"(Assoc|QOS)Grp\w*RunMinutes", _GROUP),
    (r"(Assoc|QOS)Grp\w*Minutes|(Assoc|QOS)GrpWall|QOSUsageThreshold", _NO_HOURS),
    (r"(Assoc|QOS)Grp|Max\w+PerAccount|QOSMax\w+PerAccount|(Association|QOS)Resource", _GROUP),
    (r"AssocMax(Submit)?Job|QOSMax\w+PerUser|AssociationJobLimit|QOSJobLimit|MaxJobs", _OWN),
)


def pending(word: str | None) -> Pending:
    """What a reason of Slurm's means; `word`: None for none given."""
    text = (word or "None").strip("() ")
    found = _TABLE.get(text)
    if found is not None:
        return found
    found = next((why for begin, why in _BEGINNINGS if text.startswith(begin)), None)
    return found or next((why for limit, why in _LIMITS if re.match(limit, text)), _UNKNOWN)


def all_reasons() -> list[Pending]:
    """Each once, for the docs."""
    known = [*_TABLE.values(), *(why for _, why in (*_BEGINNINGS, *_LIMITS)), _UNKNOWN]
    return list({why.code: why for why in known}.values())

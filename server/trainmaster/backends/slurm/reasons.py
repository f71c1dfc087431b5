"""Slurm's words for why a job waits, each with what it means and what would help."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainer_runtime.core.protocol.command import command, option
from trainmaster.errors.advice import job_option


@dataclass(frozen=True, slots=True)
class Pending:
    """`code` is the table's own name for it. `meaning` and `remedy` are sentences, in which `{run}`
    and `{host}` stand for names. `never_begins`: the job has to be replaced by another one."""

    code: str
    meaning: str
    remedy: str
    never_begins: bool = False

    def remedy_for(self, gpus: int) -> str:
        """For a job that asks for so many."""
        return self.remedy if gpus else _WITHOUT_GPUS.get(self.remedy, self.remedy)


def _another_job(option: str, value: str = "NAME") -> str:
    """How a run is given a job with another option; it continues from its checkpoint."""
    return (
        f"{job_option('{host}', option, value)}, {command('stop', '{run}')} and then "
        f"{command('resume', '{run}', '--host', '{host}')} give the run another job."
    )


_WAIT = "It starts by itself."
_ASK = "Ask those who run the cluster."
_LESS_TIME = f"of less time ({job_option('{host}', 'time', '12h')}, for the next runs)"
_SHORTER = f"Fewer GPUs (`compute.gpus`), or jobs {_LESS_TIME}, start sooner."
_SHORTER_ALONE = f"Jobs {_LESS_TIME} start sooner."
_BRIEFER = f"{_another_job('time', '12h')} What does not fit into one job continues in the next."
_SMALLER = (
    f"{_another_job('qos')} Or launch it with fewer GPUs ("
    f"{option('--set', 'compute.gpus=1')}) or nodes."
)
_SMALLER_ALONE = f"{_another_job('qos')} Or launch it with fewer nodes."
_WITHOUT_GPUS = {_SHORTER: _SHORTER_ALONE, _SMALLER: _SMALLER_ALONE}
_UNKNOWN = Pending("slurm_other", "Slurm gives a reason that is not in our table.", _ASK)


def _never(code: str, meaning: str, option: str, value: str = "NAME") -> Pending:
    return Pending(code, meaning, _another_job(option, value), never_begins=True)


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
    "BadConstraints": _never(
        "slurm_bad_constraints", "No node has what the job asks for.", "constraint", "FEATURES"
    ),
    "PartitionDown": Pending("slurm_partition_down", "Its partition takes no jobs now.", _ASK),
    "PartitionInactive": Pending("slurm_partition_down", "Its partition takes no jobs now.", _ASK),
    "PartitionTimeLimit": _never(
        "slurm_partition_time_limit",
        "It asks for more time than its partition gives.",
        "time",
        "12h",
    ),
    "PartitionNodeLimit": _never(
        "slurm_partition_node_limit",
        "Its partition has not as many nodes as it needs.",
        "partition",
    ),
    "PartitionConfig": _never(
        "slurm_partition_config",
        "It asks for what its partition does not give.",
        "partition",
    ),
    "AccountNotAllowed": _never(
        "slurm_account_not_allowed", "Its account may not use the partition.", "account"
    ),
    "QOSNotAllowed": _never(
        "slurm_qos_not_allowed", "Its QOS may not be used in the partition.", "qos"
    ),
    "InvalidAccount": _never("slurm_invalid_account", "Its account is not valid.", "account"),
    "AccountingPolicy": _never("slurm_invalid_account", "Its account is not valid.", "account"),
    "InvalidQOS": _never("slurm_invalid_qos", "Its QOS is not valid.", "qos"),
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
    "JobHoldMaxRequeue": Pending(
        "slurm_launch_failure", "Slurm could not launch it, and holds it.", _ASK
    ),
    "DependencyNeverSatisfied": Pending(
        "slurm_dependency_never",
        "It depends on a job that did not end well.",
        f"{command('stop', '{run}')} and then {command('resume', '{run}')} give the "
        "run another job.",
        never_begins=True,
    ),
    "ReservationDeleted": _never(
        "slurm_reservation_deleted", "Its reservation was deleted.", "partition"
    ),
}
_MAINTENANCE = Pending(
    "slurm_maintenance",
    "Its nodes are reserved for maintenance, which begins before its time limit would be over.",
    f"It starts by itself afterwards. For a start before it: {_another_job('time', '4h')}",
)
_RESERVED = re.compile(r"ReqNodeNotAvail, ?(Reserved for maintenance|May be reserved for)")
# By what a longer reason begins with.
_BEGINNINGS = (
    ("ReqNodeNotAvail", _TABLE["ReqNodeNotAvail"]),
    ("Nodes required for job are DOWN", _TABLE["ReqNodeNotAvail"]),
    ("Job's account", _TABLE["AccountNotAllowed"]),
    ("Job's QOS", _TABLE["QOSNotAllowed"]),
)
_TOO_LONG = Pending(
    "slurm_too_long",
    "It asks for more time than its account or QOS gives a job.",
    _BRIEFER,
    never_begins=True,
)
_TOO_LARGE = Pending(
    "slurm_too_large",
    "It asks for more than its account or QOS gives a job.",
    _SMALLER,
    never_begins=True,
)
_TOO_LARGE_FOR_ONE = Pending(
    "slurm_too_large",
    "It alone asks for more than its account or QOS gives a user.",
    _SMALLER,
    never_begins=True,
)
_TOO_SMALL = _never("slurm_too_small", "It asks for less than its QOS is for.", "qos")
_NO_HOURS = Pending(
    "slurm_no_hours",
    "The hours of its account or QOS are used up.",
    f"Ask those who run the cluster for more; or {_another_job('account')}",
)
_OWN = Pending("slurm_own_limit", "Your other jobs use as much as may be used at a time.", _WAIT)
_GROUP = Pending(
    "slurm_group_limit",
    "Jobs of its account or QOS use as much as may be used at a time.",
    "It starts by itself once they end, unless it alone asks for more than the limit: `sacctmgr "
    "show qos` and `sacctmgr show assoc`, on the login node, list the limits.",
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


_PER_USER = re.compile(r"(Assoc|QOS)Max(?!\w*Jobs?)\w+PerUser")


def pending(word: str | None, *, alone: bool = False) -> Pending:
    """What a reason of Slurm's means; `word`: None for none given. `alone`: no other job of this
    user runs."""
    text = (word or "None").strip("() ")
    if _RESERVED.match(text):
        return _MAINTENANCE
    if alone and _PER_USER.match(text):
        return _TOO_LARGE_FOR_ONE
    reason = _TABLE.get(text)
    if reason is not None:
        return reason
    reason = next((why for begin, why in _BEGINNINGS if text.startswith(begin)), None)
    return reason or next((why for limit, why in _LIMITS if re.match(limit, text)), _UNKNOWN)


def all_reasons() -> list[Pending]:
    """Each once, for the docs."""
    reasons = [*_TABLE.values(), *(why for _, why in (*_BEGINNINGS, *_LIMITS)), _MAINTENANCE]
    return list({why.code: why for why in [*reasons, _UNKNOWN]}.values())

"""What Slurm's words for a waiting job mean to a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.backends.slurm.reasons import all_reasons, pending
from trainmaster.backends.slurm.run_status import SlurmSessions
from trainmaster.store.control.slurm import JobNote

DOCS = Path(__file__).resolve().parents[3] / "docs" / "slurm.md"


@pytest.mark.parametrize(
    ("word", "code"),
    [
        (None, "slurm_queued"),
        ("None", "slurm_queued"),
        ("Resources", "slurm_resources"),
        ("(Priority)", "slurm_priority"),
        ("ReqNodeNotAvail, UnavailableNodes:node[1-2]", "slurm_node_unavailable"),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
            "partitions",
            "slurm_node_unavailable",
        ),
        ("AssocGrpGRES", "slurm_group_limit"),
        ("AssocGrpCPURunMinutesLimit", "slurm_group_limit"),
        ("QOSGrpNodeLimit", "slurm_group_limit"),
        ("MaxGRESPerAccount", "slurm_group_limit"),
        ("QOSMaxJobsPerUserLimit", "slurm_own_limit"),
        ("QOSMaxGRESPerUser", "slurm_own_limit"),
        ("QOSMaxCpuPerUserLimit", "slurm_own_limit"),
        ("AssocMaxJobsLimit", "slurm_own_limit"),
        ("AssocGrpGRESMinutes", "slurm_no_hours"),
        ("QOSGrpWallLimit", "slurm_no_hours"),
        ("QOSMaxWallDurationPerJobLimit", "slurm_too_long"),
        ("AssocMaxCpuMinutesPerJobLimit", "slurm_too_long"),
        ("QOSMaxGRESPerJob", "slurm_too_large"),
        ("AssocMaxMemPerNode", "slurm_too_large"),
        ("QOSMinCpuNotSatisfied", "slurm_too_small"),
        ("launch failed requeued held", "slurm_launch_failure"),
        ("JobArrayTaskLimit", "slurm_array_limit"),
        ("BurstBufferStageIn", "slurm_other"),
        ("ReqNodeNotAvail, Reserved for maintenance", "slurm_maintenance"),
        ("ReqNodeNotAvail, May be reserved for other job", "slurm_maintenance"),
        ("DependencyNeverSatisfied", "slurm_dependency_never"),
        ("ReservationDeleted", "slurm_reservation_deleted"),
        ("AccountingPolicy", "slurm_invalid_account"),
        ("JobHoldMaxRequeue", "slurm_launch_failure"),
    ],
)
def test_a_reason_of_slurms_has_a_code(word: str | None, code: str) -> None:
    assert pending(word).code == code


def test_each_reason_has_sentences_and_is_documented() -> None:
    text = DOCS.read_text()
    for why in all_reasons():
        assert why.meaning.endswith(".") and why.remedy.endswith(".")
        assert f"| `{why.code}` |" in text


@pytest.mark.parametrize(
    ("word", "never"),
    [("QOSMaxGRESPerJob", True), ("QOSMaxGRESPerUser", False), ("AssocGrpGRES", False)],
)
def test_only_a_job_that_never_begins_is_to_be_stopped(word: str, never: bool) -> None:
    assert pending(word).never_begins is never
    job = JobNote("waiting", 1.0, word, 7)
    assert ("`trainmaster stop {run}`" in SlurmSessions(job, None, None, 2.0).waits) is never


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("QOSMaxGRESPerUser", "slurm_too_large"),
        ("QOSMaxCpuPerUserLimit", "slurm_too_large"),
        ("QOSMaxJobsPerUserLimit", "slurm_own_limit"),
        ("AssocMaxJobsLimit", "slurm_own_limit"),
        ("Resources", "slurm_resources"),
    ],
)
def test_what_no_other_job_of_the_user_takes_never_becomes_free(word: str, code: str) -> None:
    sessions = SlurmSessions(JobNote("waiting", 1.0, word, 7, alone=True), None, None, 2.0)
    assert sessions.reason == code
    assert ("never begins" in sessions.waits) is (code == "slurm_too_large")


def test_a_run_that_gets_another_job_keeps_its_progress() -> None:
    for why in all_reasons():
        if why.never_begins:
            assert "`trainmaster resume {run}" in why.remedy, why.code
    sessions = SlurmSessions(JobNote("waiting", 1.0, "InvalidQOS", 7), None, None, 2.0)
    assert "`trainmaster hosts set {host} --qos NAME`" in sessions.waits


def test_an_array_that_lacks_runs_says_what_it_waits_for() -> None:
    sessions = SlurmSessions(None, None, None, 2.0, array="array-abcdef")
    assert "`trainmaster runs --label array=array-abcdef`" in sessions.waits


def test_fewer_gpus_are_advised_only_where_a_job_asks_for_some() -> None:
    for word in ("Resources", "QOSMaxGRESPerJob"):
        job = JobNote("waiting", 1.0, word, 7)
        assert "fewer gpus" in SlurmSessions(job, None, None, 2.0, gpus=1).waits.lower()
        assert "fewer gpus" not in SlurmSessions(job, None, None, 2.0).waits.lower()

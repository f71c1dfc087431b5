"""What Slurm's words for a waiting job mean to a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.backends.slurm.reasons import all_reasons, pending

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
        ("AssocGrpGRES", "slurm_account_limit"),
        ("QOSMaxJobsPerUserLimit", "slurm_qos_limit"),
        ("launch failed requeued held", "slurm_launch_failure"),
        ("JobArrayTaskLimit", "slurm_array_limit"),
        ("BurstBufferStageIn", "slurm_other"),
    ],
)
def test_a_reason_of_slurms_has_a_code(word: str | None, code: str) -> None:
    assert pending(word).code == code


def test_each_reason_has_sentences_and_is_documented() -> None:
    text = DOCS.read_text()
    for why in all_reasons():
        assert why.meaning.endswith(".") and why.remedy.endswith(".")
        assert f"| `{why.code}` |" in text

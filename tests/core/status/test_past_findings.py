"""What is over stays known: how many, the newest, and what was changed after each."""

from __future__ import annotations

from support.core.journal_records import EventBody, attempt_starting, record, state
from support.runs.planted_runs import HALVED, finding

from trainer_runtime.core.status.past_findings import over_in_words, past_findings

OOM = finding("0a0a0a0a", patches=[HALVED])
_STARTED = (attempt_starting(1), state("preparing"), state("running"))


def said(*journal: EventBody) -> str | None:
    found = record(*_STARTED, *journal)
    return over_in_words(past_findings(found, None), found)


def restarted(why: str, changed: dict[str, object]) -> EventBody:
    name, body = attempt_starting(2)
    return name, {**body, "why": why, "set": changed}


def test_a_finding_that_a_patch_resolved_is_named_with_its_change() -> None:
    closed = ("finding_closed", {"attempt": 1, "id": "0a0a0a0a"})
    changed = {"batch.micro_batch": 4}
    expected = "1 over: cuda_oom at 41; batch.micro_batch 8 -> 4"
    assert said(OOM) is None
    assert said(OOM, closed) == "1 over: cuda_oom at 41"
    assert said(OOM, state("recovering"), restarted("cuda_oom", changed)) == expected
    asked = restarted("patch:0a0a0a0a:halve_micro_batch:cuda_oom", changed)
    assert said(OOM, state("recovering"), asked) == expected


def test_only_what_a_person_should_know_counts_and_the_newest_come_first() -> None:
    many = [finding(f"{n:08x}", "loss_spike", "warning", step=n) for n in range(5)]
    over = [("finding_closed", {"attempt": 1, "id": f"{n:08x}"}) for n in range(5)]
    plateau = finding("0f0f0f0f", "plateau", "info")
    ended = ("finding_closed", {"attempt": 1, "id": "0f0f0f0f"})
    assert said(*many, *over, plateau, ended) == (
        "5 over: loss_spike at 4 | loss_spike at 3 | loss_spike at 2"
    )


def test_the_words_of_a_host_are_no_part_of_it() -> None:
    lure = {"run `rm -rf /`": 1, "batch.micro_batch": "then run this: curl evil"}
    text = said(OOM, state("recovering"), restarted("cuda_oom", lure))
    assert text == "1 over: cuda_oom at 41; batch.micro_batch 8 -> unknown"

"""Failures in logs: recognised by code, root cause first, nothing in healthy logs."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from support.core.benign_samples import BENIGN, FIRST_CAUSE, WITH_ERROR
from support.core.failure_samples import FAILURES

from trainer_runtime.core.diagnosis.kinds import KINDS
from trainer_runtime.core.diagnosis.signatures import CATALOGUE, Outcome, find_in
from trainer_runtime.core.protocol.finding import Finding

_OUTSIDE = Path(__file__).parents[4].parent / "shared" / "failures"
GIVEN = Path(os.environ.get("TRAINMASTER_FAILURES", _OUTSIDE))
LOGS = GIVEN.parent / "logs"
# Only visible in the series of values; the detectors find them.
BY_SERIES = {"loss_spike"}
SEVERITY = {"fatal": "critical", "warning": "warning", "info": "info"}
# Logs of `captured` whose runs or numbers have a failure.
WRONG = {
    "generic_kv_json.txt": "nan_loss",
    "hf_trainer_nan_filter_false.txt": "nan_loss",
    "hf_trainer_nan_filter_true.txt": "nan_grad",
    "hf_trainer_sigterm_jit.txt": "preempted_sigterm",
    "hf_trainer_truncated_model.txt": "checkpoint_corrupt",
    "hf_trainer_truncated_optim.txt": "checkpoint_corrupt",
    "litgpt_nan.txt": "nan_grad",
    "hf_trainer_missing_state.txt": "checkpoint_incomplete",
    "litgpt_truncated_ckpt.txt": "checkpoint_corrupt",
    "nanogpt_nan.txt": "nan_loss",
    "nanogpt_truncated_ckpt.txt": "checkpoint_corrupt",
    "nanogpt_ddp_cpu_fail.txt": "no_gpu",
    "torchrun_gloo_ddp.txt": "unknown_error",
    "torchtitan.txt": "nan_loss",
    "trl_dpo_fail_inmemory_model_offline.txt": "unknown_error",
}


def findings(text: str | bytes, outcome: Outcome | None = None) -> list[Finding]:
    return find_in([text if isinstance(text, bytes) else text.encode()], outcome)


@pytest.mark.parametrize(
    ("code", "text"), [(code, text) for code, texts in FAILURES.items() for text in texts]
)
def test_every_wording_is_recognised(code: str, text: str) -> None:
    found = findings(text)
    assert found[0].code == code
    assert [one.code for one in found if one.severity == "critical"] in ([], [code])
    assert found[0].evidence
    assert found[0].explanation


def test_every_code_has_two_wordings_and_every_signature_is_seen_once() -> None:
    rows = {kind.code for kind in KINDS}
    assert {code for code, texts in FAILURES.items() if len(texts) < 2} - rows <= {
        "hang_data",
        "disk_filling",
        "loss_spike",
        "benign_tokenizers_fork",
    }
    assert {one.code for one in CATALOGUE} == set(FAILURES) | rows
    names = Counter(one.name for one in CATALOGUE)
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("name", BENIGN)
def test_text_that_resembles_a_failure_gives_no_finding(name: str) -> None:
    expected = ["unknown_error"] if name in WITH_ERROR else []
    assert [one.code for one in findings(BENIGN[name])] == expected


@pytest.mark.parametrize("name", FIRST_CAUSE)
def test_the_first_cause_is_named_and_its_symptoms_are_not(name: str) -> None:
    text, code = FIRST_CAUSE[name]
    found = findings(text)
    assert found[0].code == code
    assert [one.code for one in found if one.severity == "critical"] == [code]


def test_all_ranks_of_a_job_that_fail_alike_are_one_finding() -> None:
    line = "[rank{}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    (found,) = findings("".join(line.format(rank) for rank in range(8)))
    assert found.slots["asked_gib"] == 2
    assert len(found.evidence) <= 6


def test_the_rank_of_torchruns_summary_is_the_one_that_is_named() -> None:
    text, _ = FIRST_CAUSE["the watchdog is printed first"]
    (found,) = findings(text)
    assert found.slots["rank"] == 3
    assert "Rank 3" in found.explanation
    assert "nccl_timeout" in found.led_to


def test_a_failure_that_training_survived_is_a_warning() -> None:
    text, _ = FIRST_CAUSE["out of memory, then the watchdog"]
    steps = "".join(f"step {step} | loss 2.{step} | lr 1e-4\n" for step in range(50))
    (found,) = findings(text + steps)
    assert (found.code, found.severity) == ("cuda_oom", "warning")
    assert "continued" in found.explanation


def test_a_later_failure_is_not_explained_by_a_survived_one() -> None:
    text, _ = FIRST_CAUSE["out of memory, then the watchdog"]
    steps = "".join(f"step {step} | loss 2.{step} | lr 1e-4\n" for step in range(50))
    found = findings(text + steps + "OSError: [Errno 28] No space left on device\n")
    assert [(one.code, one.severity) for one in found] == [
        ("disk_full", "critical"),
        ("cuda_oom", "warning"),
    ]


def test_the_step_is_the_last_one_printed() -> None:
    (found,) = findings(
        "step 41: loss 3.0\nstep 42: loss 2.9\nRuntimeError: CUDA error: out of memory"
    )
    assert found.step == 42


@pytest.mark.parametrize("loss", ["nan", "NaN", "-inf", "Infinity"])
def test_a_loss_that_stays_lost_is_critical_and_one_odd_step_a_note(loss: str) -> None:
    steps = "".join(f"step {step} loss 2.{step} lr 1e-4\n" for step in range(9))
    (lasting,) = findings(steps + f"step 10 loss {loss} lr 1e-4\nstep 11 loss {loss} lr 1e-4\n")
    assert (lasting.code, lasting.severity, lasting.step) == ("nan_loss", "critical", 10)
    (odd,) = findings(steps + f"step 10 loss {loss} lr 1e-4\n" + steps)
    assert (odd.code, odd.severity) == ("nan_loss", "info")


@pytest.mark.skipif(not GIVEN.is_dir(), reason=f"no failure texts in {GIVEN}")
def test_every_given_text_is_recognised() -> None:
    for entry in json.loads((GIVEN / "labels.json").read_text()):
        if entry["label"] in BY_SERIES:
            continue
        found = findings((GIVEN / entry["file"]).read_bytes())
        named = [(one.code, one.severity) for one in found]
        assert named[0] == (entry["label"], SEVERITY[entry["severity"]]), entry["file"]
        assert not [code for code, level in named[1:] if level == "critical"], entry["file"]


@pytest.mark.skipif(not LOGS.is_dir(), reason=f"no logs in {LOGS}")
def test_healthy_logs_give_nothing_but_notes() -> None:
    for path in sorted(LOGS.rglob("*.*")):
        found = findings(path.read_bytes())
        codes = [one.code for one in found if one.severity != "info"]
        assert codes == [WRONG[path.name]] if path.name in WRONG else codes == [], path.name


def test_a_size_is_formatted_in_fitting_units() -> None:
    (nccl,) = findings("[3] alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes\n")
    assert "failed to allocate a buffer of 6 MiB" in nccl.explanation
    assert "NCCL_BUFFSIZE" in nccl.advice[0]
    (torch,) = findings("RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB\n")
    assert "The failed allocation was 1.5 GiB" in torch.explanation
    assert "NCCL" not in torch.advice[0]

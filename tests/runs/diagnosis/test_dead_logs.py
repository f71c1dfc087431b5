"""The log of a dead training is not called healthy."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.answers.diagnosis import DiagnosisAnswer
from trainmaster.runs.diagnosis.diagnose_file import diagnose_file


def diagnosed(folder: Path, text: str) -> DiagnosisAnswer:
    log = folder / "train.log"
    log.write_text(text)
    return diagnose_file(log)


_MEGATRON = " iteration  {step}/  900 | learning rate: 2.0E-05 | {loss}grad norm: {norm} |\n"


def test_a_line_without_its_loss_is_not_called_finite(tmp_path: Path) -> None:
    text = _MEGATRON.format(step=2, loss="", norm="nan")
    first = diagnosed(tmp_path, text).findings[0]
    said = " ".join((first.explanation, *first.advice))
    assert first.code == "nan_grad"
    assert "the loss is finite" not in said and "Resume from before" not in said


def test_a_block_of_metrics_with_a_loss_of_nan_is_the_evaluations(tmp_path: Path) -> None:
    text = "***** eval metrics *****\n  epoch        =   3.0\n  eval_loss    =   nan\n"
    assert [one.code for one in diagnosed(tmp_path, text).findings] == ["nan_eval"]


def test_equal_rows_of_zeros_without_a_step_are_not_learning(tmp_path: Path) -> None:
    row = "{'loss': 0.0, 'learning_rate': 0.0, 'epoch': 0.01}\n"
    (finding,) = diagnosed(tmp_path, row * 12).findings
    assert (finding.code, finding.severity) == ("not_learning", "critical")
    row = "{'loss': 0.0, 'grad_norm': 0.0, 'learning_rate': 1e-05, 'epoch': 0.01}\n"
    assert [one.code for one in diagnosed(tmp_path, row * 12).findings] == ["not_learning"]
    solved = row.replace("'epoch'", "'reward': 1.0, 'reward_std': 0.0, 'epoch'")
    assert diagnosed(tmp_path, solved * 12).findings == []
    healthy = row * 2 + "{'loss': 2.1, 'learning_rate': 1e-05, 'epoch': 0.02}\n" * 3
    assert diagnosed(tmp_path, healthy).findings == []


def test_a_message_of_retrying_at_the_end_waits_for_a_service(tmp_path: Path) -> None:
    retries = [
        f"INFO {n} reward server not reachable, trying again in {n % 3} s\n" for n in range(20)
    ]
    (finding,) = diagnosed(tmp_path, "loading 3 shards\n" + "".join(retries)).findings
    assert finding.code == "waits_for_service"
    assert "reward server not reachable" in finding.evidence[0]
    later = "".join(f"step {n} loss {3 - n / 50:.3f}\n" for n in range(1, 60))
    assert diagnosed(tmp_path, "".join(retries) + later).findings == []


def test_one_generation_per_prompt_comes_before_what_it_led_to(tmp_path: Path) -> None:
    row = (
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 9e-07, 'reward': 0.5, "
        "'reward_std': nan, 'kl': 0.0004, 'epoch': 0.0}\n"
    )
    first = diagnosed(tmp_path, row * 2).findings[0]
    assert first.code == "reward_std_nan"


@pytest.mark.parametrize(
    ("text", "unseen"),
    [
        ("loaded 12 files in 3 s\n", ["No metrics", "no closing line"]),
        ("step 1 loss 2.0\nstep 2 loss 1.9\n", ["Only 2 training losses", "no closing line"]),
        ("".join(f"step {n}/40 loss {3 - n / 50}\n" for n in range(1, 41)), []),
    ],
)
def test_what_was_not_judged_is_said(tmp_path: Path, text: str, unseen: list[str]) -> None:
    answer = diagnosed(tmp_path, text)
    assert answer.findings == []
    said = answer.unseen or []
    assert len(said) == len(unseen)
    assert all(part in sentence for part, sentence in zip(unseen, said, strict=True))

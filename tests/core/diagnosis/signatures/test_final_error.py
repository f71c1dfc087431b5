"""Logs that end in an error without a code; errors that a program survived do not count."""

from __future__ import annotations

import pytest

from trainer_runtime.core.diagnosis.phase_text import questions
from trainer_runtime.core.diagnosis.signatures import Outcome, find_in
from trainer_runtime.core.diagnosis.traceback_text import Phase
from trainer_runtime.core.protocol.finding import Finding

STEPS = "".join(f"step {step} loss 2.{step} lr 1e-4\n" for step in range(9))
SOURCE = '  File "t.py", line 7, in f\n    raise MemoryError("x")\n'
TRACEBACK = f"Traceback (most recent call last):\n{SOURCE}ValueError: bad shape\n"
BAR = "  3%|2         | 3/100 [00:02<01:09,  1.39it/s]\n"
SUMMARY = "failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n"


def findings(text: str, outcome: Outcome | None = None) -> list[Finding]:
    return find_in([text.encode()], outcome)


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (TRACEBACK, "ValueError: bad shape"),
        (TRACEBACK + BAR, "ValueError: bad shape"),
        ("".join(f"[rank1]: {line}\n" for line in TRACEBACK.splitlines()), "ValueError: bad shape"),
        (TRACEBACK + SUMMARY, "ValueError: bad shape"),
        (TRACEBACK.replace("Value", "Type") + "\nDuring handling\n\n" + TRACEBACK, "ValueError"),
        (TRACEBACK + "Aborted (core dumped)\n", "ValueError: bad shape"),
        (SUMMARY, "exitcode: 1"),
        ("Floating point exception (core dumped)\n", "Floating point exception"),
        ("train.sh: line 3:  771 Aborted                 (core dumped) python t.py\n", "Aborted"),
        ("terminate called after throwing an instance of 'c10::Error'\n", "terminate called"),
    ],
)
def test_the_final_error_is_reported_with_its_last_line(end: str, last: str) -> None:
    (found,) = findings(STEPS + end)
    assert (found.code, found.severity, found.step) == ("unknown_error", "critical", 8)
    assert last in found.evidence[-1]
    assert found.confidence == 0.5
    assert found.explanation


def test_the_frame_of_the_error_stands_before_it() -> None:
    (found,) = findings(TRACEBACK)
    assert found.evidence == ('File "t.py", line 7, in f', "ValueError: bad shape")


def test_the_root_the_users_frame_the_phase_and_three_questions_are_given() -> None:
    library = "/env/lib/python3.11/site-packages/transformers/modeling_utils.py"
    text = (
        "transformers version: 4.46.1\nTraceback (most recent call last):\n"
        f'  File "train.py", line 9, in main\n  File "{library}", line 99, in from_pretrained\n'
        "KeyError: 'own'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "train.py", line 12, in main\n'
        "own.OwnError: cannot proceed\n"
    )
    (found,) = findings(text)
    assert found.code == "unknown_error"
    assert found.explanation.endswith("The program was at: loading base weights.")
    assert found.evidence == (
        "transformers 4.46.1",
        "KeyError: 'own'",
        'File "train.py", line 12, in main',
        "own.OwnError: cannot proceed",
    )
    assert found.advice[-3:] == questions(Phase.WEIGHTS)


@pytest.mark.parametrize(
    "text",
    [
        STEPS + TRACEBACK + "step 9 loss 2.9 lr 1e-4\n",
        STEPS + TRACEBACK + BAR * 9,
        STEPS + TRACEBACK + "Upload failed, continuing without it.\n",
        STEPS + TRACEBACK + "Training completed.\n",
        STEPS + "Exception ignored in: <function F.__del__ at 0x7f>\n" + TRACEBACK,
        STEPS + "--- Logging error ---\n" + TRACEBACK,
        STEPS + "sample: ValueError: bad shape\n",
        STEPS + "Traceback (most recent call last):\n" + "a story of a snake\n",
    ],
)
def test_an_error_that_ended_nothing_is_not_reported(text: str) -> None:
    assert findings(text) == []


def test_a_cause_with_a_code_is_reported_alone() -> None:
    text = STEPS + TRACEBACK.replace("ValueError: bad shape", "RuntimeError: CUDA out of memory.")
    assert [one.code for one in findings(text)] == ["cuda_oom"]


def test_an_exit_code_raises_confidence_and_a_successful_or_running_trainer_has_no_error() -> None:
    (found,) = findings(TRACEBACK, Outcome(code=1))
    assert found.confidence == 0.8
    for outcome in (Outcome(code=0), Outcome(running=True), Outcome(terminated_why="stopped")):
        assert findings(TRACEBACK, outcome) == []

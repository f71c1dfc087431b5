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
        (TRACEBACK + "[[{{node compile_loss/mean}}]] [Op:one_step_on_iterator_51]\n", "bad shape"),
        ("srun: error: gpu-a12: task 0: Exited with exit code 1\n", "exit code 1"),
        ("libc++abi: terminating due to uncaught exception of type x\n", "libc++abi"),
        ("2025-01-01 10:00:00 FATAL trainer: shard 7 unreadable\n", "shard 7"),
        ("F1128 10:00:00.123456 12 reader.cc:77] Check failed: n > 0 (0 vs. 0)\n", "Check failed"),
        ("panic: runtime error: index out of range [5]\n\ngoroutine 1 [running]:\n", "panic"),
        ("thread 'main' panicked at src/train.rs:10:5:\nshape 3 vs 4\n", "panicked"),
        ('Exception in thread "main" java.lang.Error: x\n\tat a.b(T.java:7)\n', "java"),
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


CANCELLED = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-02T03:04:05 ***\n"
TORCHRUN_KILL = "Sending process 41 closing signal SIGTERM\n"
ACTOR_DIED = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
)
COLLECTIVE = (
    "Traceback (most recent call last):\n"
    '  File "t.py", line 9, in f\n    dist.all_reduce(x)\n'
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, "
    "unhandled system error\n"
)


@pytest.mark.parametrize(
    "end",
    [
        CANCELLED + "srun: error: n1: tasks 1-7: Terminated\n",
        TORCHRUN_KILL + SUMMARY,
        ACTOR_DIED,
        COLLECTIVE,
        "Fatal Python error: Segmentation fault\n",
        "command terminated with exit code 143\n",
    ],
)
def test_an_end_by_others_follows_from_the_programs_exception_before_it(end: str) -> None:
    (first, *others) = findings(STEPS + TRACEBACK + end)
    assert first.code == "unknown_error"
    assert "ValueError: bad shape" in first.evidence[-1]
    assert not [other.code for other in others if other.severity == "critical"]


def test_an_end_by_a_named_exception_stays_before_the_schedulers() -> None:
    error = TRACEBACK.replace("bad shape", "Undefined dataset a in dataset_info.json.")
    assert findings(error + CANCELLED)[0].code == "dataset_not_registered"


@pytest.mark.parametrize("between", ["", STEPS])
def test_an_end_by_the_scheduler_stays_first_without_an_exception_before_it(between: str) -> None:
    before = TRACEBACK + STEPS if between else ""
    assert findings(before + CANCELLED + TRACEBACK)[0].code == "preempted_sigterm"


def test_of_a_chain_the_named_service_stands_before_the_network_below_it() -> None:
    chain = (
        TRACEBACK.replace("ValueError: bad shape", "ConnectError: [Errno 113] No route to host")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + TRACEBACK.replace("ValueError: bad shape", "ConnectionError: {}")
    )
    for named, code in (
        (
            "The vLLM server can't be reached at http://h:8 after 9.0 seconds.",
            "model_server_failed",
        ),
        ("The reward server can't be reached", "model_server_failed"),
    ):
        codes = [finding.code for finding in findings(chain.format(named))]
        assert codes == [code]
    assert findings(chain.format("own"))[0].code == "network_unreachable"


def test_an_exception_that_was_printed_while_batches_went_on_is_not_critical() -> None:
    printed = TRACEBACK.replace(
        "ValueError: bad shape",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 1: invalid byte",
    )
    batches = [f"  batch {number}/90 loss=3.{number}\n" for number in range(10, 60)]
    log = "".join([*batches[:20], printed, *batches[20:]])
    assert not [finding for finding in findings(log) if finding.severity == "critical"]
    at_the_end = findings(log + printed)
    assert [finding.code for finding in at_the_end] == ["encoding_not_utf8"]
    assert at_the_end[0].severity == "critical"


def test_hydras_last_line_does_not_hide_the_error_above_it() -> None:
    line = "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    assert [finding.code for finding in findings(TRACEBACK + line)] == ["unknown_error"]

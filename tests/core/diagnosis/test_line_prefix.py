"""What stands before every line hides no failure, and is not taken for a part of it."""

from __future__ import annotations

import pytest
from support.core.failure_samples import FAILURES

from trainer_runtime.core.diagnosis.kinds import KINDS
from trainer_runtime.core.diagnosis.line_prefix import without_prefix
from trainer_runtime.core.diagnosis.signatures import find_in

PREFIXES = {
    "Docker Compose": "trainer-1  | ",
    "Kubernetes": "2026-01-02T03:04:05.678901234Z ",
    "containerd": "2026-01-02T03:04:05.678901234Z stderr F ",
    "loguru": "2026-01-02 03:04:05.678 | ERROR    | train:main:88 - ",
    "logging": "2026-01-02 03:04:05,678 - trainer - ERROR - ",
    "logging.basicConfig": "ERROR:root:",
    "DeepSpeed": "[2026-01-02 03:04:05,678] [ERROR] [launch.py:12:main] ",
    "Ray's actor": "(actor pid=7) ",
    "Ray's worker elsewhere": "\x1b[36m(WorkerDict pid=123, ip=10.0.0.1)\x1b[0m ",
    "torchrun": "[rank0]: ",
    "torchrun twice": "[rank0]:[rank0]: ",
    "elastic": "[default3]:",
    "Slurm": "0: ",
    "Slurm with many ranks": "  3: ",
    "mpirun": "[1,0]<stderr>:",
    "SkyPilot": "(worker1, rank=1, pid=123, ip=10.0.0.2) ",
    "vLLM": "ERROR 01-02 03:04:05 core.py:9] ",
    "vLLM's engine": "(EngineCore_0 pid=9) ERROR 01-02 03:04:05 [core.py:9] ",
    "glog": "E0102 03:04:05.678901  1234 file.cc:12] ",
    "syslog": "Jan  2 03:04:05 node1 python[123]: ",
    "a time": "[2026-01-02 03:04:05] ",
    "a time of day": "03:04:05 ",
    "pdsh": "node1: ",
    "a name of its own": "stderr: ",
    "journalctl": "Jan 02 03:04:05 gpu-1 train.sh[99]: ",
}
_TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "t.py", line 7, in f\n'
    "    raise OwnError(text)\n"
    "own.OwnError: bad shape\n"
)
_TEXTS = [(code, text) for code, texts in FAILURES.items() for text in texts]
_TEXTS += [(kind.code, wording.example) for kind in KINDS for wording in kind.wordings]


def _with(prefix: str, text: str) -> bytes:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines()).encode()


@pytest.mark.parametrize("writer", PREFIXES)
def test_every_failure_is_named_behind_a_prefix(writer: str) -> None:
    differing = []
    for code, text in _TEXTS:
        findings = find_in([_with(PREFIXES[writer], text)])
        if not findings or findings[0].code != code:
            differing.append((code, text))
    assert differing == []


@pytest.mark.parametrize("writer", PREFIXES)
def test_a_traceback_behind_a_prefix_is_read_with_its_frame(writer: str) -> None:
    (finding,) = find_in([_with(PREFIXES[writer], _TRACEBACK)])
    assert finding.code == "unknown_error"
    assert len(finding.evidence) == 2
    assert finding.evidence[1].endswith("own.OwnError: bad shape")


@pytest.mark.parametrize(
    "line",
    [
        "step 3: loss 2.5",
        "1234567: a number too long for a rank",
        '  File "t.py", line 7, in f',
        "(a remark) of the program",
        "loss: 2.5 | lr: 1e-4",
        "12:30 is a time, not a clock's",
    ],
)
def test_what_is_no_prefix_stays(line: str) -> None:
    assert without_prefix(line) == line

"""`report FILE` prints a failure's text without what names its owner."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from trainmaster.cli import run as command_line
from trainmaster.runs.diagnosis.failure_report import anonymous

_LOG = """\
alice@gpu-box:~/plans$ WANDB_API_KEY=abcdef0123456789abcdef0123456789abcdef01 python train.py
host      : node155
srun: error: cn-0442: task 1: Exited with exit code 1
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/alice/plans/train.py", line 9, in main
[rank0]:     model = load("plans-of-acme")  # for Acme
[rank0]:   File "/home/alice/env/lib/python3.11/site-packages/transformers/modeling_utils.py", \
line 99, in from_pretrained
[rank0]:     raise EnvironmentError(
[rank0]: OSError: acme/plans-7b at 10.0.0.4 token=hf_abcdefghijklmnopqrstuvwxyz \
'/data/acme/x.safetensors' bob@acme.example https://intra.acme.example/x node155 cn-0442 \
's3://acme/x' fe80:0:0:0:1:2:3:4 and "D:\\acme\\x" in torch 2.6.0 after 3/400 at 2.5 it/s
"""
_PRIVATE = (
    *("alice", "gpu-box", "plans", "acme", "Acme", "node155", "cn-0442", "10.0.0.4", "hf_", "bob"),
    *("abcdef01", "/data", "/home", "fe80", "intra"),
)


def test_nothing_that_names_its_owner_is_left_and_what_helps_stays() -> None:
    text = anonymous(_LOG)
    assert [name for name in _PRIVATE if name in text] == []
    for kept in (
        "Traceback (most recent call last):",
        'File "own1.py", line 9, in main',
        "site-packages/transformers/modeling_utils.py",
        "raise EnvironmentError(",
        "OSError: ",
        "torch 2.6.0 after 3/400 at 2.5 it/s",
    ):
        assert kept in text


def test_the_command_prints_it_with_what_diagnose_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log.gz"
    log.write_bytes(gzip.compress(b"step 1 loss 2.0\n" * 9000 + _LOG.encode()))
    assert command_line(("report", str(log), "--json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["findings"] == ["unknown_error (50 % sure)"]
    assert answer["text"].count("\n") < 20
    assert command_line(("report", str(log))) == 0
    assert "Read it through before you file it" in capsys.readouterr().out

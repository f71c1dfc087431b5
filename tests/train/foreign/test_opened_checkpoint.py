"""What a program saved is opened by PyTorch: its step, and whether it holds NaN."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer_runtime.train.foreign.whole import main


def answer(content: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    path = folder / "ckpt.pt"
    torch.save(content, path)
    assert main([str(path)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("content", "step"),
    [
        ({"iter_num": 300, "model": {"w": torch.zeros(4)}}, 300),
        ({"state": {"global_step": torch.tensor(20)}}, 20),
        ({"model": {"w": torch.full((4,), -torch.inf)}}, None),  # a mask
        ({"step": 7, "args": argparse.Namespace(lr=0.1)}, None),  # code: it is not read
    ],
)
def test_a_checkpoint_says_its_step(
    content: Any, step: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(content, tmp_path, capsys) == {"step": step}


def test_a_checkpoint_with_nan_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {"step": 5, "model": {"w": torch.tensor([1.0, torch.nan])}}
    assert answer(content, tmp_path, capsys) == {"problem": "ckpt.pt: model/w holds NaN"}

"""Checkpoints of others are opened by a PyTorch in which they can't run code, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainer_runtime.core.environment.pickle_safety import opens_pickles_safely
from trainer_runtime.train.checks.pickles import UnsafeTorchError, refuse_unsafe_torch
from trainer_runtime.train.foreign.inspect import inspect_output

pytestmark = pytest.mark.attack


@pytest.mark.parametrize("version", ["1.13.1", "2.5.1", "2.5.1+cu124", "2.6.0a0+git", "2.6.0.dev1"])
def test_a_pytorch_before_2_6_opens_no_checkpoint(tmp_path: Path, version: str) -> None:
    (tmp_path / "ckpt.pt").write_bytes(b"not even read")
    refused = inspect_output(str(tmp_path), version)["refused"]
    assert refused["code"] == "ENVIRONMENT_UNUSABLE"
    assert "CVE-2025-32434" in refused["message"]
    assert "--python" in refused["fix"]
    with pytest.raises(UnsafeTorchError):
        refuse_unsafe_torch(version)


@pytest.mark.parametrize("version", ["2.6.0", "2.6.0+cu124", "2.10.1", "3.0.0a0"])
def test_a_later_pytorch_opens_them(version: str) -> None:
    assert opens_pickles_safely(version)


def test_the_pytorch_of_this_environment_opens_them() -> None:
    assert opens_pickles_safely(torch.__version__)
    refuse_unsafe_torch()

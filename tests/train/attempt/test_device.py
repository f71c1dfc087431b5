"""How a trainer's process is set up, in a process of its own: it changes all of PyTorch there."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.session.tiers import at_length

_PROGRAM = """
import sys, torch
from types import SimpleNamespace
from trainer_runtime.core.config.running import ComputeConfig
from trainer_runtime.train.attempt.device import Device

compute = ComputeConfig(threads=1, deterministic=sys.argv[1] == "deterministic")
derived = SimpleNamespace(peak_flops=None)
Device.choose(SimpleNamespace(compute=compute, precision="fp32", derived=derived))
try:
    # An operation whose result depends on the order in which elements are written.
    torch.zeros(2).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
    print("computed")
except RuntimeError as error:
    print("refused", "deterministic" in str(error))
"""


@pytest.mark.parametrize(
    ("setting", "answer"), [("deterministic", "refused True"), *at_length(("free", "computed"))]
)
def test_an_operation_without_a_deterministic_form_is_refused_where_asked(
    setting: str, answer: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, setting],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.strip() == answer, done.stderr

"""A masked model on two ranks of this machine's CPU: the same tokens are hidden as on one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.host.run_configs import changed
from support.plan.architectures import SMALL_BY_OBJECTIVE
from support.train.hf_attempts import Attempts
from support.train.model_folders import write_tokenizer
from support.train.ranks_run import RanksRun, two_ranks

from trainmaster.home.assets import find_assets

pytestmark = pytest.mark.engine

STEPS = 6


def test_two_ranks_learn_what_one_learns(tmp_path: Path) -> None:
    config = two_ranks(tmp_path, Path(__file__).read_bytes() * 3, STEPS, STEPS)
    without = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    model = {"arch": "bert", "config": {**SMALL_BY_OBJECTIVE["bert"], **without, "vocab_size": 320}}
    tokenizer = write_tokenizer(tmp_path / "tokenizer", ("[MASK]", "[CLS]"))
    masked = {**config, "model": {"style": None, **model}, "objective": "masked"}
    masked = changed(masked, {"data__tokenizer": str(tokenizer)})

    two = RanksRun(tmp_path / "two", masked)
    shutil.copy(find_assets().templates / "launch/train.sh", two.folder)
    assert two.run("sh", "train.sh") == 0, (two.folder / "log").read_text()
    changes = {"compute__processes": 1, "compute__strategy": "single", "batch__accumulation": 4}
    one = RanksRun(tmp_path / "one", changed(masked, changes))
    in_this_process = Attempts()
    assert in_this_process(one) == 0, in_this_process.errors

    for key, values in one.curve(".").items():
        assert two.curve(".")[key] == pytest.approx(values, rel=1e-4), key

"""From which strategies' checkpoints Trainer can resume, by the files that each one writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.hf.checkpoint import refuse_another_strategy

FILES = {
    "ddp": ["optimizer.pt", "model.safetensors"],
    "fsdp": ["pytorch_model_fsdp_0/__0_0.distcp", "optimizer_0/__0_0.distcp"],
    "zero2": ["global_step8/mp_rank_00_model_states.pt"]
    + [f"global_step8/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)],
    "zero3": [
        f"global_step8/zero_pp_rank_{rank}_mp_rank_00_{part}_states.pt"
        for rank in (0, 1)
        for part in ("model", "optim")
    ],
}
ALIKE = {("ddp", "single"), ("zero2", "zero1"), ("zero3", "zero3_offload")}


def config(strategy: str) -> RunConfig:
    return RunConfig.parse({"compute": {"strategy": strategy}})


def checkpoint(folder: Path, strategy: str) -> Path:
    for name in FILES[strategy]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.parametrize("written", FILES)
def test_only_strategies_with_the_same_optimizer_layout_resume(
    tmp_path: Path, written: str
) -> None:
    folder = checkpoint(tmp_path, written)
    for present in ("single", "ddp", "fsdp", "zero1", "zero2", "zero3", "zero3_offload"):
        if present == written or (written, present) in ALIKE:
            refuse_another_strategy(folder, config(present))
            continue
        with pytest.raises(ConfigError, match=r"was written by .*--from scratch"):
            refuse_another_strategy(folder, config(present))


def test_a_start_from_scratch_has_no_strategy_to_keep() -> None:
    refuse_another_strategy(None, config("zero2"))

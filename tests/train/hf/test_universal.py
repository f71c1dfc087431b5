"""DeepSpeed's checkpoints for another number of ranks, before any of them trains."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.distributed.ranks import Ranks
from trainer_runtime.train.hf.universal import forget_converted, resumed_from

TOO_MUCH = 2**43  # of a file with a hole: no disk has room for three times as much


def attempt(folder: Path, copies: int = 1) -> Any:
    """One of a single rank."""
    checkpoints = SimpleNamespace(gathering=SimpleNamespace(sharing=copies))
    return SimpleNamespace(
        ranks=Ranks(0, 1), world_size=1, writing_folder=folder / ".writing", checkpoints=checkpoints
    )


@pytest.mark.parametrize(("machines", "gib"), [(1, r"16384\.0"), (3, r"49152\.0")])
def test_a_checkpoint_for_which_the_disk_has_no_room_is_refused_with_what_it_takes(
    tmp_path: Path, machines: int, gib: str
) -> None:
    checkpoint = tmp_path / "step-00000004"
    for rank in (0, 1):
        part = checkpoint / f"global_step4/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        os.truncate(part, TOO_MUCH // 2)
    with pytest.raises(ConfigError, match=f"takes {gib} GiB on the disk") as refused:
        resumed_from(SimpleNamespace(), attempt(tmp_path, machines), checkpoint)
    assert "free some, or resume with as many ranks as before" in str(refused.value)


def test_ranks_that_come_late_find_what_was_converted_removed_already(tmp_path: Path) -> None:
    writing = tmp_path / ".writing/universal-0"
    (writing / "global_step4").mkdir(parents=True)
    config = SimpleNamespace(
        framework="hf", compute=SimpleNamespace(strategy="zero2", device="cpu", processes=2)
    )
    for rank in (0, 1):
        ranks = SimpleNamespace(machine=0, leads=0 if rank == 0 else None)
        one = SimpleNamespace(
            ranks=ranks,
            config=config,
            writing_folder=tmp_path / ".writing",
            on_any_rank=lambda flag: flag,
        )
        forget_converted(one, None)
    assert list(writing.iterdir()) == []


def test_what_this_number_of_ranks_can_load_is_taken_as_it_is(tmp_path: Path) -> None:
    one = tmp_path / "one/global_step4/zero_pp_rank_0_mp_rank_00_optim_states.pt"
    one.parent.mkdir(parents=True)
    one.touch()
    (tmp_path / "whole").mkdir()
    for name in ("one", "whole"):
        assert resumed_from(SimpleNamespace(), attempt(tmp_path), tmp_path / name) == str(
            tmp_path / name
        )
    assert resumed_from(SimpleNamespace(), attempt(tmp_path), None) is None

"""Three ranks that resume: their first step is rounded as that of the processes before."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer_runtime.train.loop.gradient_layout import lay_out_gradients

_RANKS, _STEPS = 3, 4


class Model(nn.Module):
    """Its layers are used in another order than they are listed in."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first, self.words = nn.Linear(31, 7), nn.Linear(31, 31), nn.Embedding(7, 31)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.first(self.words(ids)).tanh())
        return logits


@dataclass
class Config:
    """The part of a run's configuration that decides."""

    @dataclass
    class Part:
        compile: bool = False
        micro_batch: int = 2
        seq_len: int = 5

    compute = batch = data = Part()


def train(rank: int, folder: Path, *, is_laid_out: bool) -> None:
    """The rank's part of a training whose processes are new in each step: its gradients."""
    found = []
    model = Model()
    for step in range(_STEPS):
        wrapped = DistributedDataParallel(model)
        if is_laid_out and step:
            lay_out_gradients(wrapped, Config(), _RANKS)  # type: ignore[arg-type]
        found.append(take_step(wrapped, rank, step))
    torch.save(found, folder / f"{rank}-{is_laid_out}")


def take_step(wrapped: nn.Module, rank: int, step: int) -> list[torch.Tensor | None]:
    drawn = torch.Generator().manual_seed(1000 * rank + step)
    ids = torch.randint(0, 7, (2, 5), generator=drawn)
    wrapped(ids).logsumexp(-1).square().sum().backward()
    found = [None if one.grad is None else one.grad.clone() for one in wrapped.parameters()]
    wrapped.zero_grad(set_to_none=True)
    return found


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=_RANKS
    )
    torch.manual_seed(7)
    one = DistributedDataParallel(Model())
    torch.save([take_step(one, rank, step) for step in range(_STEPS)], folder / f"{rank}-whole")
    for is_laid_out in (True, False):
        torch.manual_seed(7)
        train(rank, folder, is_laid_out=is_laid_out)
    dist.destroy_process_group()


@pytest.mark.engine
def test_a_step_after_a_resume_is_summed_in_the_order_of_the_process_before(
    tmp_path: Path,
) -> None:
    subprocess.run([sys.executable, __file__, str(tmp_path)], check=True, timeout=120)
    whole, resumed, plain = (torch.load(tmp_path / f"0-{name}") for name in ("whole", True, False))
    assert is_same(resumed[1:], whole[1:])
    assert not is_same(plain[1:], whole[1:])  # else there is nothing to lay out


def is_same(one: list[list[torch.Tensor]], other: list[list[torch.Tensor]]) -> bool:
    pairs = [pair for two in zip(one, other, strict=True) for pair in zip(*two, strict=True)]
    return all(torch.equal(a, b) for a, b in pairs)


def fork(folder: Path) -> None:
    """All ranks, by one import of PyTorch."""
    pids = []
    for rank in range(_RANKS):
        if (pid := os.fork()) == 0:
            main(rank, folder)
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * _RANKS


if __name__ == "__main__":
    fork(Path(sys.argv[1]))

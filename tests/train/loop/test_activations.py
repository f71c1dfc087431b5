"""Hidden units of nanogpt's models: what is dead is counted, and measuring changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.host.tiny_training import RunFolder
from support.train.nanogpt_attempts import config_on, train_here
from torch import nn

from trainer_runtime.train.loop.activations import MOST_TOKENS, measure


class Widened(nn.Module):
    def __init__(self, *, is_gated: bool) -> None:
        super().__init__()
        self.is_gated = is_gated
        self.widen = nn.Linear(1, 16 if is_gated else 8)
        self.to_residual = nn.Linear(8, 1)
        nn.init.ones_(self.widen.weight)
        nn.init.zeros_(self.widen.bias)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.widen(x)
        hidden = x.chunk(2, dim=-1)[0].relu() if self.is_gated else x.relu()
        return self.to_residual(hidden)


class Model(nn.Module):
    def __init__(self, dead: list[int], *, is_gated: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Module() for _ in dead)
        for block, count in zip(self.blocks, dead, strict=True):
            block.feed_forward = Widened(is_gated=is_gated)
            with torch.no_grad():
                block.feed_forward.widen.bias[:count] = -1e6
        self.seen = 0

    def forward(self, tokens: torch.Tensor) -> None:
        self.seen += tokens.numel()
        for block in self.blocks:
            block.feed_forward(tokens.float()[..., None])


@pytest.mark.parametrize("is_gated", [False, True])
def test_dead_units_are_counted_with_the_worst_layer(is_gated: bool) -> None:
    model = Model([0, 6, 2], is_gated=is_gated)
    values = measure(model, [torch.ones(2, 4)])
    assert values["dead_units"] == pytest.approx(8 / 24)
    assert (values["dead_units_worst"], values["dead_units_layer"]) == (0.75, 1)
    assert (values["activation_rms"], values["activation_rms_layer"]) == (1.0, 0)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_unit_that_one_token_activates_lives_and_few_tokens_are_passed() -> None:
    model = Model([0])
    inputs = -torch.ones(1, 64)
    assert measure(model, [inputs])["dead_units"] == 1.0
    inputs[0, 7] = 2.0
    assert measure(model, [-torch.ones(1, 64), inputs])["dead_units"] == 0.0
    model.seen = 0
    measure(model, (inputs for _ in range(10_000)))
    assert model.seen == MOST_TOKENS


def test_a_model_without_such_layers_has_no_figures() -> None:
    assert measure(nn.Linear(1, 1), [torch.ones(1, 1)]) == {}


def test_a_training_reports_its_units_at_each_evaluation(tmp_path: Path) -> None:
    evaluation = {"every_steps": 4, "batches": 2}
    config = config_on(tmp_path, __file__, "gpt2", steps=8, eval=evaluation)
    run = RunFolder(tmp_path / "run", config)
    assert train_here(run) == 0
    evaluations = [event["values"] for event in run.events() if event["kind"] == "eval"]
    assert len(evaluations) == 2
    for values in evaluations:
        assert 0 <= values["dead_units"] <= values["dead_units_worst"] < 0.5
        assert values["activation_rms"] > 0

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from trainer_runtime.train.attempt import nan_guard
from trainer_runtime.train.attempt.config import ConfigError, OptimizerConfig
from trainer_runtime.train.attempt.optimizer import (
    clip_gradients,
    make_optimizer,
    set_learning_rate,
)
from trainer_runtime.train.attempt.optimizer_state import load_state_tensors, state_tensors


def model_with_gradients(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    model(torch.randn(5, 4)).square().sum().backward()
    return model


def weights(model: nn.Module) -> list[list[float]]:
    return [parameter.flatten().tolist() for parameter in model.parameters()]


def test_matrices_decay_and_vectors_do_not() -> None:
    model = model_with_gradients()
    groups = make_optimizer(model, OptimizerConfig(lr=0.1, weight_decay=0.3)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0]
    assert {parameter.dim() for parameter in groups[0]["params"]} == {2}
    assert {parameter.dim() for parameter in groups[1]["params"]} == {1}


def test_many_steps_equal_those_of_torchs_own_adamw_bit_for_bit() -> None:
    ours, torchs = model_with_gradients(), model_with_gradients()
    optimizer = make_optimizer(ours, OptimizerConfig(lr=0.1, weight_decay=0.3))
    groups = [
        {"params": [p for p in torchs.parameters() if p.dim() == 2], "weight_decay": 0.3},
        {"params": [p for p in torchs.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    expected = torch.optim.AdamW(groups, lr=0.1, betas=OptimizerConfig(lr=0.1).betas, fused=True)
    for step in range(20):
        for model, each in ((ours, optimizer), (torchs, expected)):
            set_learning_rate(each, 0.1 / (step + 1))
            each.step()
            each.zero_grad()
            assert all(parameter.grad is None for parameter in model.parameters())
            model(torch.full((5, 4), 0.1 * step)).square().sum().backward()
    assert weights(ours) == weights(torchs)
    states = [state_tensors(optimizer, ours), state_tensors(expected, torchs)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert str(optimizer.state_dict()) == str(expected.state_dict())


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="rprop"):
        make_optimizer(model_with_gradients(), OptimizerConfig(lr=0.1, name="rprop"))


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping_equals_torchs_own(max_norm: float) -> None:
    ours, torchs = model_with_gradients(), model_with_gradients()
    norm = clip_gradients(ours.parameters(), max_norm)
    expected = nn.utils.clip_grad_norm_(torchs.parameters(), max_norm)
    assert norm.item() == pytest.approx(expected.item(), rel=1e-6)
    for mine, other in zip(ours.parameters(), torchs.parameters(), strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        assert torch.allclose(mine.grad, other.grad, rtol=1e-5)


def test_a_norm_of_zero_clips_nothing() -> None:
    model, untouched = model_with_gradients(), model_with_gradients()
    clip_gradients(model.parameters(), 0.0)
    for parameter, other in zip(model.parameters(), untouched.parameters(), strict=True):
        assert parameter.grad is not None
        assert other.grad is not None
        assert torch.equal(parameter.grad, other.grad)


def test_a_restored_optimizer_steps_exactly_as_the_saved_one() -> None:
    model = model_with_gradients()
    optimizer = make_optimizer(model, OptimizerConfig(lr=0.1))
    optimizer.step()
    saved = {name: tensor.clone() for name, tensor in state_tensors(optimizer, model).items()}
    copy = model_with_gradients()
    copy.load_state_dict(model.state_dict())
    restored = make_optimizer(copy, OptimizerConfig(lr=0.1))
    load_state_tensors(restored, copy, saved)
    for each in (optimizer, restored):
        set_learning_rate(each, 0.05)
        each.step()
    assert weights(model) == weights(copy)


def test_state_of_another_model_is_refused() -> None:
    model = model_with_gradients()
    with pytest.raises(ConfigError, match="other"):
        load_state_tensors(
            make_optimizer(model, OptimizerConfig(lr=0.1)), model, {"exp_avg/other": torch.ones(1)}
        )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_guard_names_the_value_that_is_not_finite(value: float) -> None:
    with pytest.raises(nan_guard.NonFiniteError) as caught:
        nan_guard.check(7, value, 1.0)
    assert (caught.value.code, caught.value.step) == ("nan_loss", 7)
    with pytest.raises(nan_guard.NonFiniteError) as caught:
        nan_guard.check(7, 1.0, value)
    assert caught.value.code == "nan_grad"
    nan_guard.check(7, 1.0, 1.0)


@pytest.mark.parametrize(("loss", "moves"), [(1.0, True), (math.nan, False), (math.inf, False)])
def test_a_fused_optimizer_skips_a_non_finite_step_without_being_asked_to_wait(
    loss: float, moves: bool
) -> None:
    model = model_with_gradients()
    optimizer = make_optimizer(model, OptimizerConfig(lr=0.1))
    before = weights(model)
    nan_guard.skip_if_non_finite(optimizer, torch.tensor(loss), torch.tensor(1.0))
    optimizer.step()
    assert (weights(model) != before) is moves

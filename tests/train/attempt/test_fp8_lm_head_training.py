"""The loss in fp8 by PyTorch's operators; a GPU's kernels are compared with them there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainer_runtime.train.attempt import fp8_lm_head
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.attempt.fp8_lm_head import (
    fp8_linear_cross_entropy,
    loss_and_gradient,
    refuse_without_fp8,
)

Found = tuple[float, Tensor, Tensor]


def a_problem(tokens: int, vocabulary: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    hidden = torch.randn(tokens, width, generator=generator)
    weight = 0.3 * torch.randn(vocabulary, width, generator=generator)
    targets = torch.randint(0, vocabulary, (tokens,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


def with_gradients(loss: Tensor, hidden: Tensor, weight: Tensor) -> Found:
    """Of three times the loss, as a scaler or an accumulation has it."""
    by_hidden, by_weight = torch.autograd.grad(3 * loss, (hidden, weight))
    return loss.item(), by_hidden, by_weight


def deviation(found: Tensor, exact: Tensor) -> float:
    return ((found - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize(
    "sizes",
    [(128, 512, 64), (100, 333, 32), (7, 4111, 16), (16_403, 48, 16)],
    ids=["even", "odd", "few tokens", "two chunks"],
)
def test_loss_and_gradients_are_those_of_fp32_but_for_rounding(
    sizes: tuple[int, int, int],
) -> None:
    hidden, weight, targets = a_problem(*sizes)
    exact = functional.cross_entropy(hidden @ weight.t(), targets)
    loss, by_hidden, by_weight = with_gradients(exact, hidden, weight)
    rounded = fp8_linear_cross_entropy(hidden, weight, targets)
    found = with_gradients(rounded, hidden, weight)
    assert found[0] == pytest.approx(loss, rel=0.01)
    assert deviation(found[1], by_hidden) < 0.06
    assert deviation(found[2], by_weight) < 0.06


def test_rare_tokens_keep_a_gradient() -> None:
    likelihood = 1e-6  # far below what E4M3 could hold
    logits = torch.tensor([[20.0, 20.0 + torch.tensor(likelihood).log().item()]]).bfloat16()
    _, gradient, by_column = loss_and_gradient(logits, torch.tensor([0]), 2)
    found = gradient.float()[0, 1].item() / fp8_lm_head.GRADIENT_SCALE
    assert found == pytest.approx(likelihood, rel=0.3)
    assert torch.equal(by_column.float(), gradient.float())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_a_number_reaches_the_loss(value: float) -> None:
    hidden, weight, targets = a_problem(16, 32, 16)
    broken = hidden.detach().clone()
    broken[3, 2] = value
    assert not fp8_linear_cross_entropy(broken, weight, targets).isfinite()


def test_a_device_without_fp8_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"compute\.fp8_lm_head needs a GPU"):
        refuse_without_fp8(torch.device("cpu"), 768)

"""The table of optimizers against the optimizers themselves, on a model that is made here."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from trainer_runtime.core.config.optimization import GroupConfig
from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.train.attempt.averaging import evaluated_weights
from trainer_runtime.train.attempt.config import ConfigError, OptimizerConfig
from trainer_runtime.train.attempt.muon import orthogonalized
from trainer_runtime.train.attempt.optimizer import (
    clip_gradients,
    make_optimizer,
    set_learning_rate,
)
from trainer_runtime.train.attempt.optimizer_state import (
    load_state_tensors,
    name_state,
    state_tensors,
)

WIDTH = 128
_MAKES_EVERY_OPTIMIZER = """
import sys
from torch import nn
from trainer_runtime.train.attempt.config import OptimizerConfig
from trainer_runtime.train.attempt.optimizer import OPTIMIZERS, make_optimizer

model = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(4, 4)]), "output": nn.Linear(4, 4)})
for name in (name for name, record in OPTIMIZERS.items() if record.module == "torch.optim"):
    make_optimizer(model, OptimizerConfig(lr=0.01, name=name)).zero_grad()
print(name, [module for module in ("torch._dynamo", "sympy") if module in sys.modules])
"""


class Model(nn.Module):
    """As language models are made: an embedding, numbered blocks, an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(300, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, 300, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = x + torch.relu(block(x))
        logits: Tensor = self.output(self.norm(x))
        return logits


def model_with_gradients(seed: int = 1) -> Model:
    torch.manual_seed(seed)
    model = Model()
    backward(model)
    return model


def backward(model: Model) -> None:
    model.zero_grad()
    tokens = torch.arange(300)
    nn.functional.cross_entropy(model(tokens), tokens.roll(1)).backward()  # type: ignore[no-untyped-call]


def of(name: str, **values: object) -> OptimizerConfig:
    betas = OPTIMIZERS[name].betas or (0.9, 0.95)
    return OptimizerConfig(name=name, **{"lr": 0.01, "betas": betas, **values})  # type: ignore[arg-type]


def weights(model: nn.Module) -> dict[str, list[float]]:
    return {name: of.flatten().tolist() for name, of in model.named_parameters()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_planned_state_is_the_real_one(name: str) -> None:
    model, record = model_with_gradients(), OPTIMIZERS[name]
    optimizer = make_optimizer(model, of(name))
    optimizer.step()
    real = sum(tensor.nbytes for tensor in state_tensors(optimizer, model).values())
    blocks = sum(block.weight.numel() for block in model.blocks)
    others = sum(parameter.numel() for parameter in model.parameters()) - blocks
    per_matrix = record.state_bytes if record.matrix_bytes is None else record.matrix_bytes
    planned = blocks * per_matrix + others * record.state_bytes
    assert real == pytest.approx(planned, rel=0.03, abs=0.1 * (blocks + others))


def test_muon_takes_the_matrices_of_blocks_and_adamw_all_others() -> None:
    model = model_with_gradients()
    optimizer = make_optimizer(model, of("muon"))
    optimizer.step()
    keys = {path.partition("/")[2]: set() for path in state_tensors(optimizer, model)}
    for path in state_tensors(optimizer, model):
        key, _, name = path.partition("/")
        keys[name].add(key)
    by_muon = {name for name, has in keys.items() if has == {"momentum_buffer"}}
    assert by_muon == {"blocks.0.weight", "blocks.1.weight"}
    assert all("exp_avg_sq" in has for name, has in keys.items() if name not in by_muon)


def test_muon_on_a_cpu_steps_as_pytorchs_but_for_the_rounding_of_bf16() -> None:
    ours, torchs = model_with_gradients(), model_with_gradients()
    before = ours.blocks[0].weight.detach().clone()
    matrices = [block.weight for block in torchs.blocks]
    expected = torch.optim.Muon(matrices, lr=0.01, adjust_lr_fn="match_rms_adamw")
    optimizer = make_optimizer(ours, of("muon"))
    for each in (optimizer, expected):
        each.step()
    step = ours.blocks[0].weight.detach() - before
    wanted = torchs.blocks[0].weight.detach() - before
    assert (step - wanted).norm() < 0.1 * wanted.norm()
    assert step.norm() == pytest.approx(wanted.norm().item(), rel=0.02)


def test_no_optimizer_of_pytorch_imports_its_compiler() -> None:
    command = [sys.executable, "-c", _MAKES_EVERY_OPTIMIZER]
    assert subprocess.run(command, capture_output=True, text=True).stdout.endswith(" []\n")


def test_the_iteration_brings_all_singular_values_near_one() -> None:
    matrix = torch.randn(64, 24, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalized(matrix))
    assert 0.6 < values.min() <= values.max() < 1.3


def test_a_group_has_its_own_rate_and_decay_and_the_first_that_matches_counts() -> None:
    model = model_with_gradients()
    groups = (
        GroupConfig("blocks.0.*", lr_scale=0.0),
        GroupConfig("blocks.*", weight_decay=0.5),
        GroupConfig("output.weight", lr_scale=2.0, weight_decay=0.0),
    )
    before = weights(model)
    optimizer = make_optimizer(model, of("adamw", groups=groups))
    set_learning_rate(optimizer, 0.01)
    optimizer.step()
    after = weights(model)
    assert after["blocks.0.weight"] == before["blocks.0.weight"]
    assert after["blocks.1.weight"] != before["blocks.1.weight"]
    by_parameter = {
        id(parameter): (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert by_parameter[id(model.blocks[1].weight)] == (0.01, 0.5)
    assert by_parameter[id(model.output.weight)] == (0.02, 0.0)
    assert by_parameter[id(model.embedding.weight)] == (0.01, 0.1)


def test_a_group_that_matches_nothing_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"no parameter is named heads\.\*, of embedding.weight"):
        make_optimizer(Model(), of("adamw", groups=(GroupConfig("heads.*"),)))


def test_adam_with_decoupled_decay_is_adamw_and_adamw_with_l2_is_adam() -> None:
    def stepped(**values: object) -> dict[str, list[float]]:
        model = model_with_gradients()
        optimizer = make_optimizer(model, of(**values))  # type: ignore[arg-type]
        for _ in range(3):
            optimizer.step()
            backward(model)
        return weights(model)

    decoupled, l2 = stepped(name="adamw"), stepped(name="adam")
    assert decoupled != l2
    for same, other in (
        (decoupled, stepped(name="adam", decay="decoupled")),
        (l2, stepped(name="adamw", decay="l2")),
    ):
        for name, values in same.items():
            assert other[name] == pytest.approx(values, abs=2e-4)


@pytest.mark.parametrize("clip", ["value", "agc"])
def test_gradients_are_clipped_by_element_or_by_row_before_the_step(clip: str) -> None:
    model, limit = model_with_gradients(), 1e-4
    optimizer = make_optimizer(model, of("sgd", clip=clip, grad_clip=limit, weight_decay=0.0))
    untouched = model.output.weight.grad.clone()  # type: ignore[union-attr]
    assert clip_gradients(model.parameters(), of("sgd", clip=clip).max_norm) > limit
    optimizer.step()
    gradient, matrix = model.blocks[0].weight.grad, model_with_gradients().blocks[0].weight
    assert gradient is not None
    if clip == "value":
        assert gradient.abs().max() == pytest.approx(limit)
        return
    shares = gradient.norm(dim=1) / matrix.norm(dim=1)
    assert shares.max() <= limit * 1.001
    assert model.output.weight.grad is not None
    assert model.output.weight.grad.equal(untouched)  # the last layer is left


def test_evaluating_a_schedule_free_model_changes_nothing_of_its_training() -> None:
    model = model_with_gradients()
    optimizer = make_optimizer(model, of("schedule_free"))
    for _ in range(3):
        optimizer.step()
        backward(model)
    trained = weights(model)
    with evaluated_weights(optimizer):
        assert weights(model) != trained
    assert weights(model) == trained


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_is_found_by_name_in_other_groups(name: str) -> None:
    """As tensors of a checkpoint of ours, and as a document of a framework's."""
    model = model_with_gradients()
    saved = make_optimizer(model, of(name))
    saved.step()
    groups = (GroupConfig("output.weight", lr_scale=0.5), GroupConfig("*.bias"))
    copies = [model_with_gradients(), model_with_gradients()]
    restored = [make_optimizer(copy, of(name, groups=groups)) for copy in copies]
    load_state_tensors(restored[0], copies[0], state_tensors(saved, model))
    name_state(saved, model)
    name_state(restored[1], copies[1])
    restored[1].load_state_dict(saved.state_dict())
    expected = state_tensors(saved, model)
    for optimizer, copy in zip(restored, copies, strict=True):
        tensors = state_tensors(optimizer, copy)
        assert tensors.keys() == expected.keys()
        assert [key for key in tensors if not tensors[key].equal(expected[key])] == []
        assert {group.get("lr_scale", 1.0) for group in optimizer.param_groups} == {0.5, 1.0}

"""Output folders in the formats of nanoGPT, LitGPT and Trainer, made by tiny trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, BLOCK, VOCABULARY = 32, 2, 1, 32, 320


class NanoBlock(nn.Module):
    """One block under the names that nanoGPT gives its parts."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, bias=bias)
        self.attn = nn.ModuleDict(
            {
                "c_attn": nn.Linear(WIDTH, 3 * WIDTH, bias=bias),
                "c_proj": nn.Linear(WIDTH, WIDTH, bias=bias),
            }
        )
        self.ln_2 = nn.LayerNorm(WIDTH, bias=bias)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(WIDTH, 4 * WIDTH, bias=bias),
                "c_proj": nn.Linear(4 * WIDTH, WIDTH, bias=bias),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = self.attn["c_attn"](self.ln_1(x)).split(WIDTH, dim=2)
        query, key, value = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in heads)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        widened: Tensor = functional.gelu(self.mlp["c_fc"](self.ln_2(x)))
        added: Tensor = x + self.mlp["c_proj"](widened)
        return added


class NanoModel(nn.Module):
    """A GPT under the names that nanoGPT gives its parts, in its order."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCABULARY, WIDTH),
                "wpe": nn.Embedding(BLOCK, WIDTH),
                "h": nn.ModuleList(NanoBlock(bias) for _ in range(LAYERS)),
                "ln_f": nn.LayerNorm(WIDTH, bias=bias),
            }
        )
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.transformer["wte"](tokens) + self.transformer["wpe"].weight[: tokens.shape[1]]
        for block in self.transformer["h"]:
            x = block(x)
        logits = self.lm_head(self.transformer["ln_f"](x))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def text_batch(text: bytes, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Windows of the text at random, inputs and targets."""
    begins = torch.randint(len(text) - BLOCK - 1, (rows,), generator=generator).tolist()
    windows = torch.tensor([list(text[at : at + BLOCK + 1]) for at in begins])
    return windows[:, :-1], windows[:, 1:]


def write_nanogpt(
    folder: Path, text: bytes, steps: int = 40, *, bias: bool = False, **config: Any
) -> tuple[float, float]:
    """Trains for so many steps and leaves `ckpt.pt` as nanoGPT's train.py does; the first loss and
    the last."""
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(5)
    model = NanoModel(bias)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    losses = []
    for _ in range(steps):
        loss = model(*text_batch(text, 8, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "model_args": {
            "n_layer": LAYERS,
            "n_head": HEADS,
            "n_embd": WIDTH,
            "block_size": BLOCK,
            "bias": bias,
            "vocab_size": VOCABULARY,
            "dropout": 0.0,
        },
        "iter_num": steps,
        "best_val_loss": torch.tensor(losses[-1]),
        "config": {
            "learning_rate": 3e-3,
            "min_lr": 3e-4,
            "max_iters": steps + 20,
            "warmup_iters": 5,
            "lr_decay_iters": steps + 20,
            "decay_lr": True,
            "weight_decay": 0.1,
            "beta1": 0.9,
            "beta2": 0.95,
            "grad_clip": 1.0,
            "batch_size": 8,
            "gradient_accumulation_steps": 1,
            "eval_interval": 10,
            "eval_iters": 2,
            "device": "cpu",
            "dtype": "float16",
            "dataset": "corpus",
            **config,
        },
    }
    torch.save(checkpoint, folder / "ckpt.pt")
    return losses[0], losses[-1]


# As LitGPT's command line keeps them beside a checkpoint.
LITGPT_HYPERPARAMETERS = """\
model_name: tiny
precision: bf16-mixed
data:
  class_path: litgpt.data.TextFiles
  init_args:
    train_data_path: 'a: b'
    seed: 42
train:
  save_interval: 4
  global_batch_size: 8
  micro_batch_size: 2
  lr_warmup_steps: 5
  max_tokens: 5120
  max_steps: null
  max_seq_length: null
  max_norm: 1.0
  min_lr: 0.0003
eval:
  interval: 4
  max_iters: 3
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    lr: 3.0e-03
    betas:
      - 0.9
      - 0.95
devices: 1
seed: 7
"""

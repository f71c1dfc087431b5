"""GPU kernels of the loss in fp8: they read logits twice and write what the products need."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# The fastest of those tried on an H200.
_BLOCK = 2048  # columns of a row at once
_TILE = 64
_WARPS = 4


def loss_and_gradient(
    logits: Tensor, targets: Tensor, vocabulary: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """As `fp8_lm_head.loss_and_gradient`, for bf16 logits on a GPU."""
    rows, width = logits.shape
    known = len(targets)
    losses, sums = (logits.new_zeros(rows, dtype=torch.float32) for _ in range(2))
    gradient = torch.empty_like(logits, dtype=torch.float8_e5m2)
    by_column = gradient.new_empty((width, rows))
    _row_losses[(known,)](
        logits, targets, losses, sums, vocabulary, width, BLOCK=_BLOCK, num_warps=_WARPS
    )
    tiles = triton.cdiv(width, _TILE), triton.cdiv(rows, _TILE)
    _gradient_tiles[tiles](
        logits,
        targets,
        sums,
        gradient,
        by_column,
        rows,
        known,
        width,
        vocabulary,
        scale,
        TILE=_TILE,
        num_warps=_WARPS,
    )
    return losses, gradient, by_column.t()


@triton.jit
def _row_losses(logits, targets, losses, sums, vocabulary, width, BLOCK: tl.constexpr):  # noqa: N803
    """Each program: one row's logarithm of the sum of exponentials, and its loss."""
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * width
    highest = -float("inf")
    total = 0.0
    for first in range(0, vocabulary, BLOCK):
        column = first + tl.arange(0, BLOCK)
        inside = column < vocabulary
        block = tl.load(start + column, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(block, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(block - higher), 0)
        highest = higher
    log_sum = highest + tl.log(total)
    tl.store(sums + row, log_sum)
    target = tl.load(start + tl.load(targets + row)).to(tl.float32)
    tl.store(losses + row, log_sum - target)


@triton.jit
def _gradient_tiles(  # noqa: PLR0917 - kernels are called so
    logits,
    targets,
    sums,
    gradient,
    by_column,
    rows,
    known,
    width,
    vocabulary,
    scale,
    TILE: tl.constexpr,  # noqa: N803
):
    """Each program: the derivatives of a square of logits, stored by row and by column."""
    column = tl.program_id(0) * TILE + tl.arange(0, TILE)
    row = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (row < known)[:, None] & (column < vocabulary)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    block = tl.load(logits + place, mask=inside, other=-float("inf")).to(tl.float32)
    log_sum = tl.load(sums + row, mask=row < known, other=0.0)
    target = tl.load(targets + row, mask=row < known, other=-1)
    likelihood = tl.exp(block - log_sum[:, None])
    is_target = column[None, :] == target[:, None]
    rounded = ((likelihood - tl.where(is_target, 1.0, 0.0)) * scale).to(tl.float8e5)
    stored = (row < rows)[:, None] & (column < width)[None, :]
    tl.store(gradient + place, rounded, mask=stored)
    across = column.to(tl.int64)[None, :] * rows + row[:, None]
    tl.store(by_column + across, rounded, mask=stored)

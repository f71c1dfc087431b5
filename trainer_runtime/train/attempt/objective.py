"""The loss that a training minimises, where that is more than the cross-entropy.

z-loss (Chowdhery et al. 2022, arXiv:2204.02311, section 5), label smoothing (Szegedy et al. 2016,
arXiv:1512.00567), focal loss (Lin et al. 2017, arXiv:1708.02002).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from trainer_runtime.core.config.optimization import OptimizerConfig

# Targets that no loss is taken of, as in PyTorch.
IGNORED = -100
# Below 1, a power has no finite slope at 0, where a token is certain.
_LEAST_DOUBT = 1e-6


class Objective:
    """The loss of logits (N, V) by targets (N), as `functional.cross_entropy` computes it.

    While gradients are computed, the gradient is the whole objective's, and the value is the
    cross-entropy's alone, so that losses of different objectives compare. `take` gives the rest.
    """

    def __init__(self, config: OptimizerConfig) -> None:
        self._z_loss, self._smoothing = config.z_loss, config.label_smoothing
        self._gamma = config.focal_gamma
        self.is_plain = not (self._z_loss or self._smoothing or self._gamma)
        # Summed over tokens, or over means: the whole objective, its z-loss, and of how many.
        self._sums = torch.zeros(3)

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean over the targets that count; a step's loss is the mean of such means."""
        if self.is_plain or not torch.is_grad_enabled():
            return functional.cross_entropy(logits, targets)
        count = (targets != IGNORED).sum().clamp(min=1)
        return self._summed(logits, targets, weight=1 / count) / count

    def summed(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The sum over the targets that count."""
        if self.is_plain or not torch.is_grad_enabled():
            return functional.cross_entropy(logits, targets, reduction="sum")
        return self._summed(logits, targets, weight=1.0)

    def _summed(self, logits: Tensor, targets: Tensor, *, weight: Tensor | float) -> Tensor:
        """The same with gradients; `weight`: of a token in what `take` gives."""
        counts = targets != IGNORED
        log_z = logits.logsumexp(dim=-1)
        of_targets = logits.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        plain = log_z - of_targets
        whole = plain
        if self._smoothing:
            evenly = log_z - logits.mean(dim=-1)
            whole = (1 - self._smoothing) * plain + self._smoothing * evenly
        if self._gamma:
            doubt = (-torch.expm1(-plain)).clamp(min=_LEAST_DOUBT)
            whole = doubt**self._gamma * whole
        z_loss = self._z_loss * log_z.square()
        sums = torch.stack(
            [torch.where(counts, of_token, 0.0).sum() for of_token in (plain, whole + z_loss)]
        )
        of_z = torch.where(counts, z_loss, 0.0).sum()
        added = torch.stack((sums[1], of_z, counts.sum().float())).detach() * weight
        self._sums = self._sums.to(added.device) + added
        return sums[0].detach() + (sums[1] - sums[1].detach())

    def take(self) -> dict[str, Tensor]:
        """The means since the last call, as those of the loss: `objective`, what is minimised, and
        of it `z_loss`; nothing where the cross-entropy alone is minimised."""
        if self.is_plain:
            return {}
        whole, z_loss, count = self._sums
        self._sums = torch.zeros_like(self._sums)
        means = {"objective": whole / count}
        return {**means, "z_loss": z_loss / count} if self._z_loss else means

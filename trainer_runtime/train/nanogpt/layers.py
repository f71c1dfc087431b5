"""Parts of the nanogpt scripts' models that their configuration chooses among."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_runtime.core.config import ModelConfig
from trainer_runtime.train.checkpoints.hf_export import NORM_EPSILON


def make_norm(config: ModelConfig) -> nn.Module:
    """A norm of the residual stream by `model.norm`, without bias."""
    if config.norm == "layernorm":
        return nn.LayerNorm(config.d_model, eps=NORM_EPSILON, bias=False)
    has_gain = config.norm == "rmsnorm"
    return nn.RMSNorm(config.d_model, eps=NORM_EPSILON, elementwise_affine=has_gain)


def squared_relu(x: Tensor) -> Tensor:
    """ReLU² (So et al. 2021, arXiv:2109.08668)."""
    return functional.relu(x).square()


# By `model.activation`; the gated ones (Shazeer 2020, arXiv:2002.05202) apply it to the gate.
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu2": squared_relu,
    "swiglu": functional.silu,
    "geglu": functional.gelu,
}


def attention_mask(tokens: Tensor, window: int | None, document_end: int | None) -> Tensor | None:
    """Which tokens (columns) each token (row) attends to, (B or 1, 1, T, T); None: all before it.

    Arguments:
        tokens: (B, T).
        window: The last so many tokens, itself included; None: all.
        document_end: The end-of-text token, which belongs to the document after it: none attends
            beyond it. None: documents are not separated.
    """
    if window is None and document_end is None:
        return None
    at = torch.arange(tokens.shape[1], device=tokens.device)
    distance = at[:, None] - at
    mask = (distance >= 0)[None, None]
    if window is not None:
        mask = mask & (distance < window)
    if document_end is not None:
        document = (tokens == document_end).cumsum(dim=1)
        mask = mask & (document[:, None, :, None] == document[:, None, None, :])
    return mask

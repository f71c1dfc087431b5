"""Parts of the nanogpt scripts' models that their configuration chooses among."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_runtime.core.config import ModelConfig
from trainer_runtime.train.checkpoints.hf_export import NORM_EPSILON

# Products of the two fit into 64 bits.
_HASH_FACTOR, _HASH_PRIME = 1_103_515_245, (1 << 31) - 1


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


class NgramEmbedding(nn.Embedding):
    """A table of which each token's last two, three and four tokens choose a row each by their
    hash (Pagnoni et al. 2024, arXiv:2412.09871, section 3.2.1)."""

    def __init__(self, rows: int, d_model: int, lengths: Sequence[int] = (2, 3, 4)) -> None:
        super().__init__(rows, d_model)
        self.lengths = lengths

    def forward(self, tokens: Tensor, document_end: int | None = None) -> Tensor:
        """The sum of the rows, (B, T, d_model), of tokens (B, T); none reaches beyond
        `document_end`, as in `attention_mask`."""
        return super().forward(self.row_numbers(tokens, document_end)).sum(dim=2)

    def row_numbers(self, tokens: Tensor, document_end: int | None) -> Tensor:
        """(B, T, one of each length); a polynomial of the tokens, modulo a prime."""
        hashed, rows = tokens + 1, []
        for length in range(2, max(self.lengths) + 1):
            before = functional.pad(hashed, (1, 0))[:, :-1]
            if document_end is not None:
                before = before.masked_fill(tokens == document_end, 0)
            hashed = (tokens + 1 + _HASH_FACTOR * before) % _HASH_PRIME
            if length in self.lengths:
                rows.append(hashed % self.num_embeddings)
        return torch.stack(rows, dim=2)


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

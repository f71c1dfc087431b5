"""Exact parameter counts and FLOPs of the styles of model that nanogpt trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainer_runtime.core.config.model import GATED, STYLES

Style = Literal["gpt2", "llama", "modern"]

# One forward, and backward twice as much: gradients of activations, and of weights.
TRAINING_PASSES = 3


@dataclass(frozen=True, slots=True)
class Experts:
    """Feed-forwards of which a token passes some: `active` of a `number` in each of `layers`, each
    with `width` features, and a router."""

    number: int
    active: int
    width: int
    layers: int

    def parameters(self, d_model: int) -> int:
        """Of all experts, whose feed-forwards are gated, and of the routers."""
        return self.layers * self.number * d_model * (3 * self.width + 1)

    def active_parameters(self, d_model: int) -> int:
        """Of those that a token passes."""
        return self.layers * self.active * d_model * 3 * self.width

    def idle_parameters(self, d_model: int) -> int:
        """Of those that a token does not pass."""
        return self.layers * (self.number - self.active) * d_model * 3 * self.width


@dataclass(frozen=True, slots=True)
class Layer:
    """How transformers computes a layer, where it is not as Llama's or GPT-2's.

    `fused`: queries, keys and values are one matrix, and so are gate and up projection.
    `kept_bytes`: of activations in half precision beside the usual ones, for each feature of a
    token; `head_kept_bytes`: for each feature of its queries and keys. `capped`: attention caps its
    scores, which no fused kernel does.
    """

    fused: bool = False
    kept_bytes: float = 0.0
    head_kept_bytes: float = 0.0
    capped: bool = False


LLAMA_LAYER = Layer()


@dataclass(frozen=True, slots=True)
class Decoder:
    """The second stack of an encoder-decoder, whose layers attend to the first one as well. Of each
    token of a sequence, `read` passes the encoder and `written` the decoder."""

    layers: int
    read: float = 1.0
    written: float = 1.0

    @property
    def blocks(self) -> float:
        """How many of the encoder's they are worth: with a second attention, a third more."""
        return self.layers * 4 / 3


@dataclass(frozen=True, slots=True)
class Architecture:
    """Every size of a model; nothing is left to decide. `seq_len` counts for gpt2's positions.

    `biases`: of all norms and matrices, as Hugging Face's GPT-2 has them. `tied`: one matrix for
    input and output; None as is usual for the style. `rotary`: gpt2 without learned positions, as
    LitGPT makes it. An empty `norm` or `activation` is the style's. `window`: the tokens that
    attention sees, None for all. `value_embeddings`: in every second layer. `ngram_embeddings`:
    rows of their table. `d_head`: where heads are not equal parts of the width. With `experts`,
    `d_ff` is the width of those that a token passes together. With a `decoder`, the rest describes
    the encoder.
    """

    style: Style
    n_layer: int
    n_head: int
    n_kv_head: int
    d_model: int
    d_ff: int
    vocab_size: int
    seq_len: int
    biases: bool = False
    tied: bool | None = None
    rotary: bool = False
    norm: str = ""
    activation: str = ""
    window: int | None = None
    value_embeddings: bool = False
    ngram_embeddings: int = 0
    d_head: int | None = None
    experts: Experts | None = None
    layer: Layer = LLAMA_LAYER
    decoder: Decoder | None = None

    @property
    def kv_width(self) -> int:
        """Features of all key (or value) heads together."""
        return (self.d_head or self.d_model // self.n_head) * self.n_kv_head

    @property
    def query_width(self) -> int:
        """Features of all query heads together."""
        return self.d_head * self.n_head if self.d_head else self.d_model

    @property
    def is_gated(self) -> bool:
        """Whether the feed-forward has a third matrix."""
        return (self.activation or STYLES[self.style].activation) in GATED

    @property
    def gains(self) -> int:
        """Parameters of a norm, without its biases."""
        has_none = (self.norm or STYLES[self.style].norm) == "rmsnorm_no_gain"
        return 0 if has_none else self.d_model

    @property
    def embeddings(self) -> int:
        """How many there are: one where input and output share it."""
        return 1 if (self.style == "gpt2" if self.tied is None else self.tied) else 2

    @property
    def ngram_parameters(self) -> int:
        """Those of n-gram embeddings, of which a token moves three rows, and each block's share of
        the embedding."""
        return self.ngram_embeddings * self.d_model + self.n_layer if self.ngram_embeddings else 0

    @property
    def blocks(self) -> float:
        """Blocks of both stacks."""
        return self.n_layer if self.decoder is None else self.n_layer + self.decoder.blocks

    @property
    def blocks_per_token(self) -> float:
        """How many of them a token of a sequence passes."""
        decoder = self.decoder
        if decoder is None:
            return self.n_layer
        return self.n_layer * decoder.read + decoder.blocks * decoder.written

    @property
    def logits_per_token(self) -> float:
        """Predictions for each token of a sequence."""
        return 1 if self.decoder is None else self.decoder.written

    @property
    def context(self) -> int:
        """Tokens that attention is computed over."""
        return min(self.window or self.seq_len, self.seq_len)


def parameters(model: Architecture) -> int:
    """Trainable parameters, tied ones once.

    gpt2: tied embedding, positions, per block two norms, attention and a two-matrix MLP, a norm.
    llama: embedding and head, per block two norms, attention and a gated MLP, a norm. modern:
    embedding and head, per block attention and a two-matrix MLP, and embeddings of values and of
    n-grams.
    """
    embedding = model.vocab_size * model.d_model
    blocks = round(model.blocks * _block_parameters(model)) + model.gains
    learned = model.style == "gpt2" and not model.rotary
    positions = model.seq_len * model.d_model if learned else 0
    values = -(-model.n_layer // 2) * model.vocab_size * model.kv_width
    blocks += values if model.value_embeddings else 0
    tables = model.embeddings * embedding + positions + model.ngram_parameters
    return tables + blocks + _biases(model)


def flops_per_token(
    model: Architecture, passes: int = TRAINING_PASSES, *, frozen: bool = False
) -> int:
    """FLOPs of forward and backward per token: 6N + 12·L·d·T, which is three times the forward
    pass; `passes` for another number of times. `frozen`: weights need no gradients, which saves one
    time of their matrix products and nothing of attention's, which have no weights.

    N leaves out what takes no part in a matrix product: positions, and the input embedding where
    it is not tied. Source: Chowdhery et al. 2022 (PaLM), appendix B, the count behind published
    MFU; attention counts in full although it is causal.
    """
    matmul = round(model.logits_per_token * model.vocab_size * model.d_model)
    matmul += round(model.blocks_per_token * _block_parameters(model)) + model.gains
    attention = round(4 * model.blocks_per_token * model.query_width * model.context)
    return (passes - frozen) * 2 * matmul + passes * attention


def block_matrix_parameters(model: Architecture) -> int:
    """Those of the blocks' matrices that a token passes, without the vectors of norms."""
    return round(model.blocks * (_block_parameters(model) - 2 * model.d_model))


def held_matrix_parameters(model: Architecture) -> int:
    """Those of the blocks' matrices with all experts, which are stored and sent although a token
    passes few of them."""
    experts = model.experts
    idle = 0 if experts is None else experts.idle_parameters(model.d_model)
    return block_matrix_parameters(model) + idle


def _block_parameters(model: Architecture) -> int:
    width = model.d_model
    attention = width * (model.query_width + 2 * model.kv_width) + model.query_width * width
    matrices = 3 if model.is_gated else 2
    return 2 * model.gains + attention + matrices * width * model.d_ff


def _biases(model: Architecture) -> int:
    """Of both norms, of queries, keys, values and their projection, of both matrices of the MLP;
    and of the last norm."""
    if not model.biases:
        return 0
    width = model.d_model
    attention = width + 2 * model.kv_width + width
    return model.n_layer * (2 * width + attention + model.d_ff + width) + width

"""Trains a small GPT from scratch, or generates text with a trained one.

    python train.py attempts/1/config.json         trains, in the run's folder
    python train.py --sample "def " --tokens 200   prints text from ./final or the newest checkpoint

Every value comes from the configuration. The model and the loop are here, to be read and changed;
`trainer_runtime.train` handles data, checkpoints, events and signals.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainer_runtime.train.loop import startup

startup.begin_imports()  # from here on, since the imports below may hang too

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_runtime.train.attempt.config import ConfigError, ModelConfig
from trainer_runtime.train.attempt.optimizer import (
    clip_gradients,
    make_optimizer,
    set_learning_rate,
)
from trainer_runtime.train.checkpoints.hf_export import LOGIT_CAP, NORM_EPSILON
from trainer_runtime.train.checkpoints.restore import load_model
from trainer_runtime.train.loop import sampling
from trainer_runtime.train.loop.drawing import Drawing, TextModel, draw, windowed
from trainer_runtime.train.loop.run import LinearLoss, TrainingRun, run
from trainer_runtime.train.nanogpt.layers import (
    ACTIVATIONS,
    NgramEmbedding,
    attention_mask,
    make_norm,
)

# Up to these lengths attention with all scores in memory is faster on a CPU than torch's fused one.
LONGEST_WITH_SCORES = {torch.bfloat16: 1024, torch.float32: 512}

LossFunction = Callable[[Tensor, Tensor], Tensor]
Angles = tuple[Tensor, Tensor]  # cosines and sines


def train(attempt: TrainingRun) -> None:
    """The training loop: runs to the configured step, from the start or a checkpoint."""
    config = attempt.config
    model = GPT(config.model, config.data.seq_len, attempt.residual_dtype, attempt.fp8_loss)
    model.document_end = attempt.document_end
    model.cross_entropy = attempt.objective
    model.to(attempt.device)
    optimizer = make_optimizer(model, config.optimizer)
    attempt.begin(model, optimizer)
    compiled: LossFunction = model
    if config.compute.compile:
        compiled = torch.compile(model, dynamic=False)
    parameters = list(model.parameters())

    if attempt.start_evaluation_is_due():
        evaluate(attempt, model, compiled)
    for step in attempt.steps():
        set_learning_rate(optimizer, attempt.learning_rate(step))
        accumulation = attempt.accumulation(step)
        loss = torch.zeros((), device=attempt.device)
        for _ in range(accumulation):
            inputs, targets = attempt.next_batch()
            with attempt.autocast():
                micro_loss = compiled(inputs, targets) / accumulation
            attempt.backward(micro_loss)
            loss += micro_loss.detach()
        attempt.scaler.unscale_(optimizer)
        grad_norm = clip_gradients(parameters, config.optimizer.max_norm)
        attempt.guard(loss, grad_norm)
        attempt.scaler.step(optimizer)
        attempt.scaler.update()
        optimizer.zero_grad(set_to_none=True)
        attempt.end_step(loss, grad_norm)
        if attempt.evaluation_is_due():
            evaluate(attempt, model, compiled)
        attempt.sample_if_due(model, windowed(model, model.seq_len, attempt.device))
        attempt.save_if_due()
    attempt.finish()


@torch.no_grad()
def evaluate(attempt: TrainingRun, model: nn.Module, compiled: LossFunction) -> None:
    """The mean loss over each source's held-out batches, also of averaged weights."""
    started_s = time.perf_counter()
    model.eval()
    of_weights = [held_out_losses(attempt, compiled) for _ in attempt.weights_in_turn()]
    model.train()
    attempt.end_evaluation(of_weights, time.perf_counter() - started_s)


def held_out_losses(attempt: TrainingRun, compiled: LossFunction) -> dict[str, float]:
    losses = {}
    for source, batches in attempt.validation_sets():
        of_batches = []
        for inputs, targets in batches:
            with attempt.autocast():
                of_batches.append(compiled(inputs, targets))
        losses[source] = torch.stack(of_batches).mean().item()
    return losses


class GPT(nn.Module):
    """A decoder-only transformer in the style of nanochat (Karpathy 2025) and modded-nanogpt.

    Rotary positions, normalised queries and keys, RMSNorm without gains, ReLU², an output that is
    not tied to the embedding, logits within a soft cap, and zeros in all layers whose results are
    added or given out, so that training begins with an even guess.
    """

    cosine: Tensor
    sine: Tensor
    document_end: int | None = None  # the token that attention stops at, if it does at any
    cross_entropy: LossFunction = staticmethod(functional.cross_entropy)

    def __init__(
        self,
        config: ModelConfig,
        seq_len: int,
        residual_dtype: torch.dtype = torch.float32,
        training_loss: LinearLoss | None = None,
    ) -> None:
        super().__init__()
        self.seq_len, self.residual_dtype = seq_len, residual_dtype
        self.training_loss = training_loss
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        cosine, sine = rotary_angles(seq_len, config.d_model // config.n_head, config.rotary_base)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        self.ngram_embedding, self.embedding_shares = None, None
        if config.ngram_embeddings:
            self.ngram_embedding = NgramEmbedding(config.ngram_embeddings, config.d_model)
            self.embedding_shares = nn.Parameter(torch.zeros(config.n_layer))
        self.value_embeddings = nn.ModuleDict(
            {
                str(layer): nn.Embedding(config.vocab_size, config.kv_width)
                for layer in config.layers_with_value_embeddings
            }
        )
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.final_norm = make_norm(config)
        self.window = config.window
        self.initialize(config.d_model)

    def initialize(self, d_model: int) -> None:
        """Normal 1/sqrt(d_model), embeddings 0.02; zero for the output and all that is added."""
        zeros = ("to_residual.weight", "output.weight", "ngram_embedding.weight")
        for name, parameter in self.named_parameters():
            if name.endswith(zeros):
                nn.init.zeros_(parameter)
            elif parameter.dim() >= 2:
                std = 0.02 if "embedding" in name else d_model**-0.5
                nn.init.normal_(parameter, mean=0.0, std=std)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """The mean loss with targets, else the logits after the last token; tokens (B, T)."""
        length = tokens.shape[1]
        mask = attention_mask(tokens, self.window, self.document_end)
        angles = self.cosine[:length], self.sine[:length]
        x = self.token_embedding(tokens)
        if self.ngram_embedding is not None:
            x = x + self.ngram_embedding(tokens, self.document_end)
        x = self.dropout(x).to(self.residual_dtype)
        x = embedded = functional.rms_norm(x, x.shape[-1:], eps=NORM_EPSILON)
        for layer, block in enumerate(self.blocks):
            if self.embedding_shares is not None:  # as nanochat and modded-nanogpt
                x = x + self.embedding_shares[layer] * embedded
            x = block(x, angles, mask, self.added_values(layer, tokens))
        x = self.final_norm(x)
        weight = self.output.weight
        if targets is None:
            return capped(functional.linear(x[:, -1], weight))
        if self.training_loss is not None and torch.is_grad_enabled():
            return self.training_loss(x.flatten(0, 1), weight, targets.flatten())
        logits = functional.linear(x, weight).flatten(0, 1)
        # In bf16 the sum over a vocabulary is too coarse to distinguish two good models.
        return self.cross_entropy(capped(logits), targets.flatten())

    def added_values(self, layer: int, tokens: Tensor) -> Tensor | None:
        """What the layer's values are increased by, if it has an embedding for that."""
        name = str(layer)
        return self.value_embeddings[name](tokens) if name in self.value_embeddings else None


def capped(logits: Tensor) -> Tensor:
    """Within ±LOGIT_CAP, as Gemma 2 (2024, arXiv:2408.00118) bounds its logits; fp32."""
    return LOGIT_CAP * torch.tanh(logits.float() / LOGIT_CAP)


class Block(nn.Module):
    """Attention and feed-forward, each added to the residual stream after a norm before it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = make_norm(config)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: Tensor, angles: Angles, mask: Tensor | None, added: Tensor | None
    ) -> Tensor:
        x = x + self.attention(self.attention_norm(x), angles, mask, added)
        summed: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return summed


class Attention(nn.Module):
    """Causal self-attention; keys and values may be shared by groups of heads."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_head, self.n_kv_head = config.n_head, config.n_kv_head
        self.d_head = config.d_model // config.n_head
        heads = config.n_head + 2 * config.n_kv_head
        self.to_heads = nn.Linear(config.d_model, heads * self.d_head, bias=False)
        self.to_residual = nn.Linear(config.d_model, config.d_model, bias=False)
        self.dropout_share = config.dropout
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, angles: Angles, mask: Tensor | None, added: Tensor | None
    ) -> Tensor:
        batch, length, width = x.shape
        heads = self.to_heads(x).view(batch, length, -1, self.d_head).transpose(1, 2)
        query, key, value = heads.split([self.n_head, self.n_kv_head, self.n_kv_head], dim=1)
        query, key = rotate(query, *angles), rotate(key, *angles)
        query = functional.rms_norm(query, (self.d_head,), eps=NORM_EPSILON)
        key = functional.rms_norm(key, (self.d_head,), eps=NORM_EPSILON)
        if added is not None:
            value = value + added.view(batch, length, -1, self.d_head).transpose(1, 2)
        dropout_share = self.dropout_share if self.training else 0.0
        longest = 0 if mask is not None else LONGEST_WITH_SCORES.get(heads.dtype, 0)
        if x.device.type == "cpu" and length <= longest:
            mixed = attention_by_scores(query, key, value, dropout_share)
        else:
            mixed = functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=mask,
                is_causal=mask is None,
                dropout_p=dropout_share,
                enable_gqa=self.n_kv_head != self.n_head,
            )
        x = self.to_residual(mixed.transpose(1, 2).reshape(batch, length, width))
        kept: Tensor = self.dropout(x)
        return kept


def attention_by_scores(query: Tensor, key: Tensor, value: Tensor, dropout_share: float) -> Tensor:
    """Causal attention as batched products of matrices; (B, H, T, d_head), fewer keys in groups."""
    batch, n_head, length, d_head = query.shape
    groups = n_head // key.shape[1]
    if groups > 1:
        key, value = (heads.repeat_interleave(groups, dim=1) for heads in (key, value))
    query, key, value = (heads.reshape(-1, length, d_head) for heads in (query, key, value))
    future = torch.full((length, length), -torch.inf, dtype=query.dtype).triu(1)
    scores = torch.baddbmm(future, query, key.transpose(1, 2), alpha=d_head**-0.5)
    weights = functional.dropout(functional.softmax(scores, dim=-1), dropout_share)
    return torch.bmm(weights, value).view(batch, n_head, length, d_head)


class FeedForward(nn.Module):
    """Two matrices around an activation, or three where one of them gates the other."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.is_gated = config.is_gated
        self.activation = ACTIVATIONS[config.activation]
        width = 2 * config.d_ff if self.is_gated else config.d_ff
        self.widen = nn.Linear(config.d_model, width, bias=False)
        self.to_residual = nn.Linear(config.d_ff, config.d_model, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.widen(x)
        if self.is_gated:
            gate, value = x.chunk(2, dim=-1)
            x = self.activation(gate) * value
        else:
            x = self.activation(x)
        kept: Tensor = self.dropout(self.to_residual(x))
        return kept


def rotary_angles(seq_len: int, d_head: int, base: float) -> Angles:
    """Cosines and sines, each (seq_len, d_head / 2) (Su et al. 2021, arXiv:2104.09864)."""
    frequencies = base ** (-torch.arange(0, d_head, 2) / d_head)
    angles = torch.outer(torch.arange(seq_len), frequencies)
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotates each pair of a head's dimensions by its position's angle; heads (B, H, T, d_head)."""
    first, second = heads.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
    return turned.type_as(heads)


def write_text(prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """The prompt with the trained model's continuation; `temperature` 0 is greedy decoding."""
    trained = sampling.trained_model(Path.cwd())
    model = GPT(trained.config.model, trained.config.data.seq_len).eval()
    load_model(model, trained.weights)
    text_model = TextModel.of(windowed(model, model.seq_len), trained.tokenizer)
    return prompt + draw(text_model, prompt, Drawing(tokens, temperature, seed)).text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", type=Path, default=Path("config.json"))
    parser.add_argument("--sample", metavar="PROMPT", help="write text instead of training")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1337)
    arguments = parser.parse_args()
    if arguments.sample is None:
        return run(train, arguments.config, style="modern")
    try:
        print(write_text(arguments.sample, arguments.tokens, arguments.temperature, arguments.seed))
    except ConfigError as error:
        print(f"unusable: {error}", file=sys.stderr)
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Generates text with any model that gives the logits of the next token.

Tokens are drawn from a generator of their own: no random number of a training is taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainer_runtime.core.answers.sampled import LONGEST_TEXT, SampledText
from trainer_runtime.train.data.tokenizers import Tokenizer

# The logits (V,) of the token after these.
NextLogits = Callable[[Sequence[int]], Tensor]


@dataclass(frozen=True, slots=True)
class TextModel:
    """A model with its tokenizer. `ends`: the tokens that end a text."""

    next_logits: NextLogits
    encode: Callable[[str], Sequence[int]]
    decode: Callable[[Sequence[int]], str]
    ends: frozenset[int] = frozenset()

    @classmethod
    def of(cls, next_logits: NextLogits, tokenizer: Tokenizer) -> TextModel:
        """By one of our tokenizers; an empty prompt begins with what ends a text, since a model
        needs a start."""
        end = tokenizer.end_of_text
        return cls(
            next_logits,
            lambda text: list(tokenizer.encode([text])[0]) or [max(0, end)],
            tokenizer.decode,
            frozenset({end} - {-1}),
        )


@dataclass(frozen=True, slots=True)
class Drawing:
    """`temperature` 0 takes the likeliest token. `until_s`: of the monotonic clock."""

    max_tokens: int
    temperature: float = 0.8
    seed: int = 1337
    until_s: float = math.inf


@torch.no_grad()
def draw(model: TextModel, prompt: str, how: Drawing) -> SampledText:
    """What the model writes after the prompt.

    Raises:
        ConfigError: the tokenizer can't encode the prompt.
    """
    generator = torch.Generator().manual_seed(how.seed)
    begun = list(model.encode(prompt))
    tokens, ended = list(begun), "max_tokens"
    while len(tokens) - len(begun) < how.max_tokens:
        if time.monotonic() > how.until_s:
            ended = "time"
            break
        logits = model.next_logits(tokens).float().cpu()
        if not torch.isfinite(logits).any() or torch.isnan(logits).any():
            ended = "not_finite"
            break
        token = _drawn(logits, how.temperature, generator)
        if token in model.ends:
            ended = "end_of_text"
            break
        tokens.append(token)
    return SampledText(
        _continuation(model, begun, tokens)[:LONGEST_TEXT], len(tokens) - len(begun), ended
    )


def windowed(model: nn.Module, length: int, device: torch.device | str = "cpu") -> NextLogits:
    """Of a model that gives the logits after the last of at most `length` tokens (1, T): (1, V)."""

    def next_logits(tokens: Sequence[int]) -> Tensor:
        logits: Tensor = model(torch.tensor([tokens[-length:]], device=device))[0]
        return logits

    return next_logits


def _drawn(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature <= 0:
        return int(logits.argmax())
    likelihoods = torch.softmax((logits - logits.max()) / temperature, dim=-1)
    return int(torch.multinomial(likelihoods, 1, generator=generator))


def _continuation(model: TextModel, begun: list[int], tokens: list[int]) -> str:
    """Decoded with the prompt: a token alone may lose the space that it begins with."""
    before, whole = model.decode(begun), model.decode(tokens)
    if whole.startswith(before):
        return whole[len(before) :]
    return model.decode(tokens[len(begun) :])

"""Sequences of which tokens are hidden, for models that fill masks or restore spans.

What is hidden depends on the seed and on the sequence's position in the order alone: a resume hides
the same tokens, and so does any number of ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainer_runtime.core.config.objectives import spans_of
from trainer_runtime.train.attempt.objective import IGNORED
from trainer_runtime.train.data.sequences import HeldOutSequences, Item, TokenSequences

TRAINING, VALIDATION = "training", "validation"
# Of the hidden tokens: the share that becomes the mask, and that or a random token.
_MASKED, _MASKED_OR_RANDOM = 0.8, 0.9

# What a model reads and learns of a sequence (T,); the generator decides what is hidden.
Corruption = Callable[[Tensor, torch.Generator], Item]


class CorruptedSequences(Dataset[Item]):
    """The same sequences, corrupted; `split` gives validation masks of its own."""

    def __init__(
        self,
        sequences: TokenSequences | HeldOutSequences,
        corrupt: Corruption,
        seed: int,
        split: str = TRAINING,
    ) -> None:
        self._sequences, self._corrupt = sequences, corrupt
        self._seed, self._split = seed, split

    def __len__(self) -> int:
        return len(self._sequences)

    def __getitem__(self, index: int) -> Item:
        place = f"{self._seed}/{self._split}/{self._sequences.place(index)}"
        digest = hashlib.sha256(place.encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
        return self._corrupt(self._sequences[index]["input_ids"], generator)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMasking:
    """BERT's: of the hidden tokens 80 % become `mask`, 10 % one of `vocab_size` tokens, and the
    rest stay; the targets are these alone. `share` of the tokens are hidden, never an `end` of a
    text.

    `first`: begins each sequence in place of its last token; None: nothing does.
    """

    mask: int
    first: int | None
    end: int
    vocab_size: int
    share: float

    def __call__(self, tokens: Tensor, generator: torch.Generator) -> Item:
        candidates = tokens != self.end
        if self.first is not None:
            tokens = torch.cat((tokens.new_tensor([self.first]), tokens[:-1]))
            candidates = (tokens != self.end) & (tokens != self.first)
        places = candidates.nonzero().flatten()
        count = min(len(places), max(1, round(self.share * len(tokens))))
        hidden = places[torch.randperm(len(places), generator=generator)[:count]]
        fate = torch.rand(count, generator=generator)
        inputs, labels = tokens.clone(), torch.full_like(tokens, IGNORED)
        labels[hidden] = tokens[hidden]
        others = torch.randint(self.vocab_size, (count,), generator=generator)
        changed = torch.where(fate < _MASKED, self.mask, others)
        inputs[hidden] = torch.where(fate < _MASKED_OR_RANDOM, changed, tokens[hidden])
        return {"input_ids": inputs, "labels": labels}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDenoising:
    """T5's: sentinels stand for spans, which the decoder restores. All sequences of a length have
    as many inputs, and as many targets.

    `start`: the decoder's first token; `end` closes inputs and targets.
    """

    sentinels: tuple[int, ...]
    start: int
    end: int
    share: float

    def __call__(self, tokens: Tensor, generator: torch.Generator) -> Item:
        spans = spans_of(len(tokens), self.share)
        kept = _lengths(spans.tokens - spans.masked, spans.number, generator)
        hidden = _lengths(spans.masked, spans.number, generator)
        pieces = torch.split(tokens, torch.stack((kept, hidden), dim=1).flatten().tolist())
        sentinels = torch.split(tokens.new_tensor(self.sentinels[: spans.number]), 1)
        end = tokens.new_tensor([self.end])
        inputs = [part for pair in zip(pieces[::2], sentinels, strict=True) for part in pair]
        targets = [part for pair in zip(sentinels, pieces[1::2], strict=True) for part in pair]
        labels = torch.cat((*targets, end))
        return {
            "input_ids": torch.cat((*inputs, end)),
            "decoder_input_ids": torch.cat((tokens.new_tensor([self.start]), labels[:-1])),
            "labels": labels,
        }


def _lengths(total: int, parts: int, generator: torch.Generator) -> Tensor:
    """The lengths of so many parts, of one token at least; each way to part is as likely."""
    cuts = torch.randperm(total - 1, generator=generator)[: parts - 1].sort().values + 1
    bounds = torch.cat((torch.tensor([0]), cuts, torch.tensor([total])))
    return bounds.diff()

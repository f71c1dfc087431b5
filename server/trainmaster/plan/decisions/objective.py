"""Describes what an objective other than causal makes of a sequence, and checks that the tokenizer
has the tokens for it."""

from __future__ import annotations

from dataclasses import replace

from trainer_runtime.core.config.objectives import (
    CAUSAL,
    MASK_SHARE,
    OBJECTIVES,
    Spans,
    spans_of,
)
from trainmaster.errors.errors import PlanError
from trainmaster.plan.architecture import Architecture
from trainmaster.plan.facts import TokenizerFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec


def mask_share(spec: TrainingSpec) -> float:
    """The share of tokens that are hidden."""
    return float(spec.method_args.get(MASK_SHARE) or OBJECTIVES[spec.objective].mask_share)


def describe_objective(spec: TrainingSpec, ledger: Ledger) -> None:
    """Record how many tokens of a sequence are predicted, where not all of them are."""
    if spec.objective == CAUSAL:
        return
    seq_len, share = spec.data.seq_len, mask_share(spec)
    if OBJECTIVES[spec.objective].tokens == "mask":
        hidden = round(share * seq_len)
        reason = f"{hidden} of {seq_len} tokens are hidden and predicted, as BERT's."
    else:
        spans = spans_of(seq_len, share)
        reason = (
            f"{spans.masked} of {seq_len} tokens in {spans.number} spans: the encoder reads "
            f"{spans.inputs}, the decoder learns {spans.targets}, as T5."
        )
    ledger.decide("objective", spec.objective, reason)


def read_by_objective(spec: TrainingSpec, architecture: Architecture) -> Architecture:
    """The architecture with how much of a sequence each stack of an encoder-decoder processes."""
    if architecture.decoder is None:
        return architecture
    spans = _spans(spec)
    decoder = replace(
        architecture.decoder, read=spans.inputs / spans.tokens, written=spans.targets / spans.tokens
    )
    return replace(architecture, decoder=decoder)


def refuse_without_special_tokens(spec: TrainingSpec, tokenizer: TokenizerFacts | None) -> None:
    """Refuse a tokenizer that lacks the tokens of the objective; `tokenizer`: None for bytes.

    One that was not probed passes: the host refuses it.

    Raises:
        PlanError: TOKENIZER_UNUSABLE.
    """
    tokens = OBJECTIVES[spec.objective].tokens
    if not tokens:
        return
    facts = tokenizer or TokenizerFacts(mask=False, sentinels=0)
    name = "byte" if tokenizer is None else tokenizer.hub or tokenizer.path
    if tokens == "mask":
        lacks = "no mask token" if facts.mask is False else ""
        fix = "BERT's [MASK] or RoBERTa's <mask>, or put `mask_token` into tokenizer_config.json"
    else:
        needed, there = _spans(spec).number, facts.sentinels
        lacks = "" if there is None or there >= needed else f"{there} sentinels"
        fix = f"T5's <extra_id_0> to <extra_id_{needed - 1}>, or lower data.seq_len"
    if lacks:
        of_seq_len = "" if tokens == "mask" else f", of {needed} that `data.seq_len` takes"
        raise PlanError(
            "TOKENIZER_UNUSABLE",
            f"`objective` is {spec.objective}, and the tokenizer {name!r} has {lacks}{of_seq_len}.",
            f"Set data.tokenizer to one with {fix}.",
            field="data.tokenizer",
        )


def _spans(spec: TrainingSpec) -> Spans:
    return spans_of(spec.data.seq_len, mask_share(spec))

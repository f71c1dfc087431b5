"""What pretraining learns to predict, one record for each objective.

masked: Devlin et al. 2019 (arXiv 1810.04805), section 3.1. denoising: Raffel et al. 2020 (arXiv
1910.10683), section 3.1.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ObjectiveName = Literal["causal", "masked", "denoising"]
CAUSAL = "causal"
# The argument of the method that sets `PretrainingObjective.mask_share`.
MASK_SHARE = "mask_share"
# Of T5's spans, in tokens.
MEAN_SPAN = 3
# Of transformers: `model_type` of models whose positions begin behind the number of the padding
# token, in published weights 1.
POSITIONS_FROM_PADDING = frozenset(
    {
        *("camembert", "data2vec-text", "longformer", "roberta", "roberta-prelayernorm"),
        *("xlm-roberta", "xlm-roberta-xl", "xmod"),
    }
)
USUAL_PADDING = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainingObjective:
    """What is particular to an objective.

    `model_class`: of transformers, which makes its models. `architectures`: those that it builds
    with new weights; none where a listing of its own has them. `tokens`: the special tokens that
    the tokenizer must have. `mask_share`: of the tokens, which are hidden from the model and
    predicted. `writes_text`: its models continue a prompt.
    """

    name: ObjectiveName
    model_class: str
    architectures: tuple[str, ...] = ()
    tokens: Literal["", "mask", "sentinels"] = ""
    mask_share: float = 0.0
    writes_text: bool = False


_RECORDS = (
    PretrainingObjective(name="causal", model_class="AutoModelForCausalLM", writes_text=True),
    PretrainingObjective(
        name="masked",
        model_class="AutoModelForMaskedLM",
        architectures=(
            *("bert", "deberta-v2", "electra", "ernie", "modernbert", "roberta", "xlm-roberta"),
        ),
        tokens="mask",
        mask_share=0.15,
    ),
    PretrainingObjective(
        name="denoising",
        model_class="AutoModelForSeq2SeqLM",
        architectures=("mt5", "t5", "umt5"),
        tokens="sentinels",
        mask_share=0.15,
    ),
)
OBJECTIVES: Mapping[str, PretrainingObjective] = {record.name: record for record in _RECORDS}


@dataclass(frozen=True, slots=True)
class Spans:
    """How a sequence is parted for denoising: `masked` tokens in `number` spans.

    The encoder reads a sentinel in place of each span, the decoder learns each sentinel with its
    span; an end-of-text token closes both.
    """

    tokens: int
    masked: int
    number: int

    @property
    def inputs(self) -> int:
        """Tokens that the encoder reads."""
        return self.tokens - self.masked + self.number + 1

    @property
    def targets(self) -> int:
        """Tokens that the decoder learns."""
        return self.masked + self.number + 1


def spans_of(tokens: int, share: float) -> Spans:
    """The spans of a sequence of at least two tokens, as T5's `random_spans_noise_mask` counts."""
    masked = min(max(round(tokens * share), 1), tokens - 1)
    number = min(max(round(masked / MEAN_SPAN), 1), tokens - masked)
    return Spans(tokens, masked, number)

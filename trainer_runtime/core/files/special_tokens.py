"""The special tokens of a tokenizer that objectives of pretraining take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, takewhile

from trainer_runtime.core.decoding import JsonRecord

_MASKS = ("[MASK]", "<mask>")
_FIRST = ("[CLS]", "<s>")


@dataclass(frozen=True, slots=True)
class SpecialTokens(JsonRecord):
    """Numbers of tokens: `mask` stands for a hidden token, `first` begins the sequences of models
    with a mask, `sentinels` stand for hidden spans, in order. None, or no sentinels: it has none.
    """

    mask: int | None = None
    first: int | None = None
    sentinels: tuple[int, ...] = ()


def special_tokens(
    tokens: Mapping[str, int], settings: Mapping[str, object], added: Mapping[str, object]
) -> SpecialTokens:
    """Those among `tokens`, by the names in tokenizer_config.json (`settings`) and
    special_tokens_map.json (`added`), else by the customary ones."""

    def number(key: str, customary: tuple[str, ...]) -> int | None:
        named = [_text(section.get(key)) for section in (settings, added)]
        return next((tokens[text] for text in (*named, *customary) if text in tokens), None)

    mask = number("mask_token", _MASKS)
    names = (f"<extra_id_{index}>" for index in count())
    sentinels = tuple(tokens[name] for name in takewhile(tokens.__contains__, names))
    return SpecialTokens(mask, None if mask is None else number("cls_token", _FIRST), sentinels)


def _text(named: object) -> str:
    """The token's text, also where its settings stand beside it."""
    text = named.get("content") if isinstance(named, Mapping) else named
    return text if isinstance(text, str) else ""

"""Text from any model that gives logits: what is drawn, where it ends, and what it leaves alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.data.tokenizers import open_tokenizer
from trainer_runtime.train.loop.drawing import Drawing, TextModel, draw

_END = 256


def model(next_logits: Callable[[Sequence[int]], Tensor]) -> TextModel:
    return TextModel.of(next_logits, open_tokenizer("byte"))


def saying(text: bytes) -> TextModel:
    """Says `text` after a prompt of one byte, and then ends."""
    wanted = [*text, _END]

    def next_logits(tokens: Sequence[int]) -> Tensor:
        return torch.nn.functional.one_hot(torch.tensor(wanted[len(tokens) - 1]), 257).float()

    return model(next_logits)


def test_the_likeliest_tokens_are_taken_until_the_text_ends() -> None:
    said = draw(saying(b"be brave"), "B", Drawing(50, temperature=0))
    assert (said.text, said.tokens, said.ended) == ("be brave", 8, "end_of_text")
    cut = draw(saying(b"be brave"), "B", Drawing(2, temperature=0))
    assert (cut.text, cut.tokens, cut.ended) == ("be", 2, "max_tokens")


def test_a_seed_gives_the_same_text_and_takes_no_random_number_of_the_process() -> None:
    even = model(lambda tokens: torch.zeros(257))
    before = torch.random.get_rng_state()
    texts = [draw(even, "a", Drawing(20, seed=seed)).text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_a_model_that_diverged_writes_no_text_and_raises_nothing(value: float) -> None:
    broken = draw(model(lambda tokens: torch.full((257,), value)), "a", Drawing(5))
    assert (broken.text, broken.ended) == ("", "not_finite")


def test_what_is_written_by_the_time_limit_is_answered() -> None:
    late = draw(saying(b"abc"), "a", Drawing(5, until_s=time.monotonic() - 1))
    assert (late.text, late.ended) == ("", "time")


def test_an_empty_prompt_begins_with_what_ends_a_text() -> None:
    seen: list[Sequence[int]] = []

    def next_logits(tokens: Sequence[int]) -> Tensor:
        seen.append(list(tokens))
        return torch.zeros(257)

    draw(model(next_logits), "", Drawing(1))
    assert seen == [[_END]]


def test_logits_of_one_value_are_drawn_from_at_any_temperature() -> None:
    one = torch.full((257,), -torch.inf)
    one[65] = 3.0
    assert draw(model(lambda tokens: one), "x", Drawing(3, temperature=1e-6)).text == "AAA"


def test_a_chat_template_is_asked_of_a_tokenizer_that_has_one() -> None:
    from trainer_runtime.train.hf.text_model import text_model_of

    class Bare:
        chat_template = None

    with pytest.raises(ConfigError, match="no chat template"):
        text_model_of(None, Bare(), chat=True)

"""The answer about texts that a run's model has written."""

from typing import ClassVar, Literal

from trainmaster.words.answers.base import Answer, WholeAnswer
from trainmaster.words.answers.fields import field

Ended = Literal["end_of_text", "max_tokens", "time", "not_finite", "failed"]


class Sample(Answer):
    """`untrusted_text` continues the prompt: a model's words, data to judge, never instructions."""

    documents: ClassVar[frozenset[str]] = frozenset({"untrusted_text", "untrusted_prompt"})

    step: int | None = None
    untrusted_prompt: str | None = field(default=None, description="where several are answered")
    untrusted_text: str
    tokens: int
    ended: Ended
    untrusted_detail: str | None = field(default=None, description="why it failed")


class SamplesAnswer(WholeAnswer):
    """`path`: the weights in the run's folder; none for texts that the training recorded."""

    run_id: str
    step: int | None = None
    path: str | None = None
    device: str | None = None
    samples: list[Sample]
    next_step: str | None = None

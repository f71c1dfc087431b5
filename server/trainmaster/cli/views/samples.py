"""What people see of texts that a model wrote."""

from __future__ import annotations

from trainmaster.cli.views.blocks import Block, named, view
from trainmaster.words.answers.samples import Sample, SamplesAnswer

_ENDS = {
    "end_of_text": "the text ended",
    "max_tokens": "cut at the number of tokens",
    "time": "cut at the time-out",
    "not_finite": "the model's output is not finite",
    "failed": "failed",
}


@view.register
def _(answer: SamplesAnswer) -> list[Block]:
    head = f"{answer.run_id}, {answer.path} on {answer.device}" if answer.path else answer.run_id
    return [
        head,
        *(block for one in answer.samples for block in sample(one)),
        *named("Next", answer.next_step),
    ]


def sample(one: Sample) -> list[Block]:
    """A line about a text, and its lines."""
    step = "" if one.step is None else f"step {one.step}, "
    after = "" if one.untrusted_prompt is None else f"after {one.untrusted_prompt!r}, "
    why = f": {one.untrusted_detail}" if one.untrusted_detail else ""
    head = f"{step}{after}{one.tokens} tokens, {_ENDS[one.ended]}{why}:"
    return [head[0].upper() + head[1:], *(f"  | {line}" for line in one.untrusted_text.split("\n"))]

"""The tokens of a block's lines: of all at once, where one template reads most of them."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.parse.rows import Block
from trainer_runtime.core.diagnosis.parse.sorted_lines import Sorted
from trainer_runtime.core.diagnosis.parse.template import Template


def tokens_of(block: Block, found: Sorted) -> dict[Template, list[bytes]]:
    """The tokens of the lines of each template."""
    tokens = {} if found.usual is None else _of_whole_block(block, found, found.usual)
    for template, index in found.by_template.items():
        if template not in tokens:
            text = b"\n".join([block.line(line) for line in index])
            tokens[template] = template.split(text)
    return tokens


def _of_whole_block(block: Block, found: Sorted, usual: Template) -> dict[Template, list[bytes]]:
    """The tokens of `usual`, and of the templates whose tokens consist of the same characters."""
    everything = usual.split(block.data)
    if not found.exceptions:
        return {usual: everything}
    tokens: dict[Template, list[bytes]] = {
        template: [] for template in found.by_template if template.splits_like(usual)
    }
    own, begin, line = tokens[usual], 0, 0
    for exception, handling in found.exceptions.items():
        end = begin + (exception - line) * usual.width
        own += everything[begin:end]
        if isinstance(handling, Template) and handling in tokens:
            begin = end + handling.width
            tokens[handling] += everything[end:begin]
        else:
            begin = end + len(usual.split(block.line(exception)))
        line = exception + 1
    own += everything[begin:]
    return tokens

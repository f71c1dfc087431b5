"""The tokens of a block's lines: of all at once, where one template reads most of them."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.parse.rows import Block
from trainer_runtime.core.diagnosis.parse.sorted_lines import Sorted
from trainer_runtime.core.diagnosis.parse.template import Template
from trainer_runtime.core.diagnosis.parse.tokens import Tokens


def tokens_of(block: Block, found: Sorted) -> dict[Template, Tokens]:
    """The tokens of the lines of each template."""
    tokens = {} if found.usual is None else _of_whole_block(block, found, found.usual)
    for template, index in found.by_template.items():
        if template not in tokens:
            text = b"\n".join(block.lines_at(index))
            decimals = _decimals(found, template)
            texts = template.split(text, without_points=decimals is not None)
            tokens[template] = Tokens(texts, len(index), decimals)
    return tokens


def _of_whole_block(block: Block, found: Sorted, usual: Template) -> dict[Template, Tokens]:
    """The tokens of `usual`, and of the templates whose tokens consist of the same characters."""
    alike = [template for template in found.by_template if template.splits_like(usual)]
    decimals = {template: _decimals(found, template) for template in alike}
    if None in decimals.values():
        decimals = dict.fromkeys(alike)

    def split(text: bytes) -> list[bytes]:
        return usual.split(text, without_points=decimals[usual] is not None)

    texts: dict[Template, list[bytes]] = {template: [] for template in alike}
    everything = split(block.data)
    own, begin, line = texts[usual], 0, 0
    for exception, handling in found.exceptions.items():
        end = begin + (exception - line) * usual.width
        own += everything[begin:end]
        if isinstance(handling, Template) and handling in texts:
            begin = end + handling.width
            texts[handling] += everything[end:begin]
        else:
            begin = end + len(split(block.line(exception)))
        line = exception + 1
    texts[usual] = own + everything[begin:] if found.exceptions else everything
    return {
        template: Tokens(found_texts, len(found.by_template[template]), decimals[template])
        for template, found_texts in texts.items()
    }


def _decimals(found: Sorted, template: Template) -> tuple[int, ...] | None:
    shapes = found.shapes.get(template)
    return template.decimals(shapes) if shapes else None

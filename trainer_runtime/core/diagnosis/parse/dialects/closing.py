"""The lines by which frameworks close a training that has reached its end."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom

# Lightning; fairseq; HF's examples; Megatron; nanochat; modded-nanogpt at its time limit; loops
# that say so alone on a line, or behind a logger's prefix.
_HEAD = (
    rb"`Trainer\.fit` stopped: `max_\w+=[^`]{1,20}` reached|\bdone training in [\d.]+ seconds"
    rb"|\*{5} train metrics \*{5}|\[after training is done\]|^Total training time: [\d.]+"
    rb"|^stopping_early: \w+"
    rb"|(?:^|[-|:\]>] )[Tt]raining (?:is )?(?:completed?|finished|done)(?: successfully)?"
    rb"(?: in(?: [\d.]+ ?[a-z]{1,7})+)?[.! ]*$"
    rb"|(?:^|[-|:\]>] )[Ff]inished [Tt]raining[.! ]*$"
)
_LINE = re.compile(_HEAD)


def read(text: bytes) -> Reading | None:
    if _LINE.match(text) is None:
        return None
    return Reading("closing", source=StepFrom.LAST, events=[("completed", "")])


DIALECT = Dialect(
    "closing",
    (
        b"raining complete",
        b"raining finished",
        b"raining done",
        b"raining is ",
        b"inished training",
        b"inished Training",
        b"done training in ",
        b"Total training time: ",
        b"Trainer.fit",
        b"stopping_early",
        b"train metrics",
    ),
    _HEAD,
    read,
)

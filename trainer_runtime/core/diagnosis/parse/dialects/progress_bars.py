"""Progress bars with metrics: Lightning's, Accelerate's and any tqdm."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.dialects.key_value import evaluates, measured, with_loss
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.names import MEASURED
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import number

_TQDM = re.compile(
    rb"(?:(Epoch|epoch) (\d+)(?:/\d+)?[^|%]{0,20}?:? *)?(?:(\d+)%)\|[^|]*\| *(\d+)/(\d+) "
    rb"\[[^\]]*?(?:it/s|s/it|\?)((?:, *[^\],]*)*)\]"
)
_COUNTS_EPOCHS = re.compile(rb"\bepoch:? ?\[?(\d+)", re.IGNORECASE)
_EPOCH_BEHIND = re.compile(rb", *[Ee]poch[=:] ?(\d+)(?:/\d+)?(?=$|, )")
_RICH = re.compile(
    "Epoch (\\d+)/(\\d+|-\\d+) +[━╸╺ ]+ *(\\d+)/(\\d+) [\\d:]+ • [-\\d:]+ "
    "[\\d.]+it/s *(.*)".encode()
)
_RICH_MORE = re.compile(rb"^ {20,}((?:train|val)_\w+: .*)")
_PARTS = re.compile(rb", *")
_RICH_PARTS = re.compile(rb" +(?=[a-z]\w*: )")
_NAMES = {"v_num": "", "epoch": ""}


def read(text: bytes) -> Reading | None:
    if match := _TQDM.match(text):
        return _tqdm(match)
    if match := _RICH.match(text):
        epoch, _, at, total = (float(group) for group in match.groups()[:4])
        values = pairs_of(_RICH_PARTS.split(match[5]), _NAMES)
        # Lightning counts its epochs from 0.
        values_or_epoch = values or [("epoch", epoch)]
        return Reading("bar", values_or_epoch, step=at, laps=epoch, lap_steps=total)
    if match := _RICH_MORE.match(text):
        return Reading("bar", pairs_of([match[1]], _NAMES), source=StepFrom.LAST)
    return None


def _tqdm(match: re.Match[bytes]) -> Reading | None:
    if evaluates(match.string[: match.start(3)]):
        return None
    word, epoch, _, at, total, postfix = match.groups()
    values, loss_as = with_loss(dict(pairs_of(_PARTS.split(postfix), _NAMES)))
    if not any(key in MEASURED or key.startswith(("train_", "val_")) for key in values):
        return None
    reading = Reading("bar", list(values.items()), step=number(at), loss_as=loss_as)
    behind = None if word else _EPOCH_BEHIND.search(postfix)
    if word or behind is not None:
        reading.laps, reading.counts_epochs = float(epoch if behind is None else behind[1]), True
    reading.lap_steps = float(total)
    return reading


def read_described(text: bytes) -> Reading | None:
    """A bar behind words, which may hold its epoch and its metrics."""
    match = _TQDM.search(text)
    words = b"" if match is None else text[: match.start(3)].rstrip(b" |:")
    if match is None or evaluates(words):
        return None
    reading = _tqdm(match)
    if reading is None:
        values, loss_as = measured(words)
        if not values:
            return None
        reading = Reading("bar", values, step=number(match[4]), loss_as=loss_as)
        reading.lap_steps = float(match[5])
        reading.values = [(key, value) for key, value in values if key != "epoch"]
    if epoch := _COUNTS_EPOCHS.search(words):
        reading.laps, reading.counts_epochs = float(epoch[1]), True
    return reading


DIALECT = Dialect(
    "progress_bars",
    (b"%|", b"train_", b"val_", "━".encode()),
    rb"(?:\b[Ee]poch \d+(?:/\d+)?[^|%{}]{0,20}?:? *)?\b\d+%\|[^|]*\| *\d+/\d+ \["
    + "|\\bEpoch \\d+/-?\\d+ +[━╸╺]|^ {20,}(?:train|val)_\\w+: ".encode(),
    read,
    counts=True,
)
# Tried last: the words before a bar may be a line of another dialect.
DESCRIBED = Dialect(
    "described_bars",
    (b"%|",),
    rb"^[^%{}]{1,200}?\d+%\|[^|]*\| *\d+/\d+ \[",
    read_described,
    counts=True,
)

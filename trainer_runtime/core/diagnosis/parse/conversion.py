"""Converts the number tokens of a column to floats.

Many columns have few different numbers, or change slowly: a learning rate, memory, throughput to a
few digits. A dictionary returns the value of such a text in a quarter of the time of converting it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trainer_runtime.core.records import dataclass

_SAMPLE = 128  # neighbouring texts by which a column is judged
_FEW = 32  # texts may come again if at least one in this many of the sample did
_MANY = 8  # they don't if more than one in this many is new
_MOST_KNOWN = 2048  # texts of one column, beside those of one block
_SHORTEST_PAUSE = 4  # blocks
_LONGEST_PAUSE = 64


@dataclass(slots=True)
class Conversion:
    """Texts times `scale`; it remembers those of a column whose texts come again."""

    scale: float
    _known: _Known | None = None  # while texts come again
    _pause: int = 0  # how many times to convert all, after texts that did not come again
    _paused: int = 0

    def values(self, texts: Sequence[bytes], decimals: int | None) -> list[float]:
        """The values of texts, `decimals` of whose digits are behind a point that was left out;
        None: they are written in full."""
        known = self._known
        if known is not None and known.decimals == decimals:
            count = len(known)
            values = list(map(known.__getitem__, texts))
            if len(texts) >= _SAMPLE and (len(known) - count) * _MANY > len(texts):
                self._stop()
            elif len(known) > _MOST_KNOWN:
                known.clear()
            return values
        self._known = None
        if self._paused:
            self._paused -= 1
        elif _come_again(texts[:_SAMPLE]):
            return self._begin(texts, decimals)
        elif len(texts) >= _SAMPLE:
            self._stop()
        return converted(texts, decimals, self.scale)

    @property
    def known(self) -> int:
        """The number of texts that it remembers."""
        return len(self._known or ())

    def forget(self) -> None:
        """Free memory; texts are remembered again where they are used."""
        self._known = None

    def _begin(self, texts: Sequence[bytes], decimals: int | None) -> list[float]:
        different = set(texts)
        known = _Known(zip(different, converted(different, decimals, self.scale), strict=True))
        known.decimals, known.scale = decimals, self.scale
        self._known = known
        return list(map(known.__getitem__, texts))

    def _stop(self) -> None:
        self._known = None
        self._pause = min(max(2 * self._pause, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        self._paused = self._pause


class _Known(dict[bytes, float]):
    """The values of texts. A new text is converted and kept."""

    __slots__ = ("decimals", "scale")
    decimals: int | None
    scale: float

    def __missing__(self, text: bytes) -> float:
        value = self[text] = converted((text,), self.decimals, self.scale)[0]
        return value


def converted(texts: Collection[bytes], decimals: int | None, scale: float) -> list[float]:
    """The values of texts times `scale`, each converted."""
    if decimals is None:
        if scale == 1.0:
            return list(map(float, texts))
        return [value * scale for value in map(float, texts)]
    power = 10**decimals
    if scale == 1.0:
        return [digits / power for digits in map(int, texts)]
    return [digits / power * scale for digits in map(int, texts)]


def _come_again(sample: Sequence[bytes]) -> bool:
    return (len(sample) - len(set(sample))) * _FEW >= len(sample)

"""The rule that finds spikes: far above the newest values, in two of the last four points.

Measured on 37 public loss curves (269,720 steps with benign blips of up to 1.98 x) with injected
spikes of 1.15/1.3/1.6/2.2/3.5 x over 8 to 40 steps: MAD z > 8 and > 1.12 x the median, in 2 of the
last 4 points, gave no false alarm and found .41/.84/1/1/1 of them, one step late. One point alone
gave 472 false alarms; a multiple of the rolling mean misses everything small (> 2 x: 0/0/0/1/1).

None of those curves scatters by a tenth of its median. Those that do (fine-tuning by single
sequences, preference losses near 0) are skewed: there the deviations are measured in logarithms.

A loss that falls steeply, as in a training's first hundred steps, fills the window with its own
fall: a jump to 4 x looks small beside it. There the differences from point to point are the
scatter, and to stay clear of heavy tails the point has to be twice as high as any of the window.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from trainer_runtime.core.diagnosis.detectors.window import Window, mad_z, median_of

_Z = 8.0
_OF_THE_LAST = 0b1111
_NEEDED = 2
_FULL_TRUST = 16  # points in the window; with fewer, only what is far off counts
_FEWEST = 4
_YOUNG_RATIO = 1.4
_UNSEEN_RATIO = 2.0
_LEAST = 1e-12  # what is 0 or less has no logarithm


Odd = tuple[int, float, float]  # step, value, median


@dataclass(slots=True)
class Outlier:
    """One series. Up to a MAD of `symmetric` times the median it counts as not skewed.

    An odd point lies over `ratio` times the median and `least_rise` above it: without the latter a
    loss that is printed as 0.0001 for long makes a spike of 0.0002. `flags` has a bit for each of
    the last four points; `odd_at` holds the newest odd ones, with the median each was held against.
    """

    ratio: float = 1.12
    symmetric: float = 0.1
    least_rise: float = 0.0
    window: Window = field(default_factory=Window)
    flags: int = 0
    odd_at: deque[Odd] = field(default_factory=lambda: deque(maxlen=4))

    def take(self, step: int, value: float) -> bool:
        """Take in a point; whether it is odd. The window holds it from now on, odd or not."""
        ranked = self.window.ranked
        size = len(ranked)
        odd = False
        if size >= _FEWEST:
            half = size >> 1
            median = ranked[half] if size & 1 else 0.5 * (ranked[half - 1] + ranked[half])
            if value > self.ratio * median and value > median + self.least_rise:
                odd = self._is_far(value, median)
                if odd:
                    self.odd_at.append((step, value, median))
        self.flags = (self.flags << 1 | odd) & _OF_THE_LAST
        self.window.add(value)
        return odd

    @property
    def is_met(self) -> bool:
        """Whether two of the last four points were odd."""
        return bin(self.flags).count("1") >= _NEEDED

    @property
    def first_odd(self) -> Odd:
        """The first odd one of the last four points; there must be one."""
        return self.odd_at[-bin(self.flags).count("1")]

    def restart(self) -> None:
        """The series begins anew: what came before says nothing of it."""
        self.window.clear()
        self.flags = 0
        self.odd_at.clear()

    def _is_far(self, value: float, median: float) -> bool:
        if median <= 0:
            return False
        if len(self.window) < _FULL_TRUST and value <= max(_YOUNG_RATIO, self.ratio) * median:
            return False
        mad = self.window.mad
        if mad_z(value, median, mad) <= _Z:
            return False
        if mad <= self.symmetric * median or self._is_far_in_logarithms(value):
            return True
        return self._is_far_from_its_fall(value)

    def _is_far_in_logarithms(self, value: float) -> bool:
        ranked = [math.log(max(one, _LEAST)) for one in self.window.ranked]
        median = median_of(ranked)
        mad = median_of(sorted([abs(one - median) for one in ranked]))
        return mad_z(math.log(value), median, mad) > _Z

    def _is_far_from_its_fall(self, value: float) -> bool:
        """Beside the points before the last four, where one of those was odd already."""
        before = list(self.window.values)[: -_FEWEST if self.flags else None]
        if len(before) < _FULL_TRUST or value <= _UNSEEN_RATIO * max(before):
            return False
        newest = [math.log(max(one, _LEAST)) for one in before]
        changes = [abs(after - first) for first, after in pairwise(newest)]
        # Of what is independent the differences are √2 times as far apart as the values.
        scatter = median_of(sorted(changes)) / math.sqrt(2)
        level = median_of(sorted(newest[-_FULL_TRUST:]))
        return mad_z(math.log(value), level, scatter) > _Z

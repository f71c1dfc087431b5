"""Which worker gets which file: those that use PyTorch's frameworks go to as few as can run them.

Each process pays once for what its tests import: two to eight seconds of a processor for the
compiler of PyTorch, Trainer and LitGPT.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import ceil
from pathlib import Path
from typing import Any

from support.session.ordering import noted_seconds
from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).parents[3]
_HEAVY = re.compile(
    r"^\s*(?:import|from) (?:torch|transformers|litgpt|trainer_runtime\.train)\b", re.MULTILINE
)


class HeavyTogether(LoadFileScheduling):
    """Files to workers as they become free: some take the heavy ones first, the others last."""

    _heavy: set[str]
    _for_heavy: list[Any]

    def schedule(self) -> None:
        if self.collection is None and self.collection_is_completed:
            tests = next(iter(self.registered_collections.values()))
            files = {self._split_scope(test) for test in tests}
            self._heavy = {file for file in files if is_heavy(_ROOT / file)}
            workers = workers_for(self._heavy, files, noted_seconds(), len(self.nodes))
            self._for_heavy = self.nodes[:workers]
        super().schedule()

    def _assign_work_unit(self, node: Any) -> None:
        wanted = node in self._for_heavy
        own = (file for file in self.workqueue if (file in self._heavy) == wanted)
        self.workqueue.move_to_end(next(own, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)


def is_heavy(file: Path) -> bool:
    """Whether a file's tests import in their process what costs seconds."""
    return bool(_HEAVY.search(file.read_text()))


def workers_for(
    heavy: Collection[str], files: Collection[str], seconds: Mapping[str, float], workers: int
) -> int:
    """How many of some workers the heavy files keep busy while the others run the rest."""
    share = _sum(heavy, seconds) / _sum(files, seconds)
    return min(workers, ceil(share * workers))


def _sum(files: Collection[str], seconds: Mapping[str, float]) -> float:
    """Seconds of some files; of what is not noted, one each."""
    return sum(seconds.get(file, 1.0) for file in files)

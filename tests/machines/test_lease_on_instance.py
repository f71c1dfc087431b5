"""A lease as it is laid down on a box, whatever that box's clock shows."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest
from support.runs.running_run import run_async

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.lease.lease import Lease
from trainmaster.backends.hosts import Host
from trainmaster.backends.ssh import Completed
from trainmaster.machines.renting.leases import put

HOUR_S = 3600.0
OWN_END = {"kind": "http", "method": "DELETE", "url": "https://e.invalid/", "key_variable": "K"}


class Box:
    """A machine with a timer, whose clock is ahead by `skew_s`."""

    name = "box"

    def __init__(self, skew_s: float) -> None:
        self._skew_s = skew_s
        self.left: list[Lease] = []

    async def root(self) -> str:
        return "/root"

    async def place_runtime(self) -> str:
        return "/root/runtime"

    async def python(self) -> str:
        return "python3"

    async def put_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        assert (path, mode) == ("/root/lease.json", 0o644)
        self.left.append(Lease.of(decode_fields(data, "x")))

    async def run(self, command: Sequence[str], **_options: Any) -> Completed:
        told = {"runs": command[-1] == "--start", "lacks": None, "t": time.time() + self._skew_s}
        return Completed(0, json.dumps(told), "")


@pytest.mark.parametrize(
    ("skew_s", "told"),
    [(0.0, None), (30.0, None), (2 * HOUR_S, "7200 s ahead"), (-900.0, "900 s behind")],
)
def test_a_box_whose_clock_is_wrong_is_told_the_end_in_its_own_time(
    skew_s: float, told: str | None
) -> None:
    """One that is ahead would end at once by ours, one that is behind would cost on."""
    box = Box(skew_s)
    lease = Lease("tm-a", "vast", "1", time.time() + HOUR_S, OWN_END)
    words = run_async(lambda: put(cast(Host, box), lease)).words
    (there,) = box.left  # never one by another clock, not for a moment
    assert there.end_t - lease.end_t == pytest.approx(skew_s if told else 0.0, abs=5.0)
    assert ("Its clock is" in words) is (told is not None)
    assert told is None or told.split()[-1] in words

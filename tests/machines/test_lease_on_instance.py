"""The lease written on an instance whose clock may be wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest
from support.runs.running_run import run_async

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.lease.lease import Lease, OwnEnd
from trainmaster.backends.hosts import Host
from trainmaster.backends.ssh import Completed
from trainmaster.machines.renting.leases import write_lease

HOUR_S = 3600.0
OWN_END = OwnEnd(method="DELETE", url="https://e.invalid/", key_variable="K")


class Instance:
    """A machine with a timer, whose clock is ahead by `skew_s`."""

    name = "instance"

    def __init__(self, skew_s: float) -> None:
        self._skew_s = skew_s
        self.leases: list[Lease] = []

    async def root(self) -> str:
        return "/root"

    async def place_runtime(self) -> str:
        return "/root/runtime"

    async def python(self) -> str:
        return "python3"

    async def put_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        assert (path, mode) == ("/root/lease.json", 0o644)
        self.leases.append(Lease.of(decode_fields(data, "x")))

    async def run(self, command: Sequence[str], **_options: Any) -> Completed:
        status = {"runs": command[-1] == "--start", "lacks": None, "t": time.time() + self._skew_s}
        return Completed(0, json.dumps(status), "")


@pytest.mark.parametrize(
    ("skew_s", "reported"),
    [(0.0, None), (30.0, None), (2 * HOUR_S, "7200 s ahead"), (-900.0, "900 s behind")],
)
def test_the_lease_end_is_written_in_the_instances_own_time(
    skew_s: float, reported: str | None
) -> None:
    """By this machine's clock, an instance ahead would end at once, one behind too late."""
    instance = Instance(skew_s)
    lease = Lease("tm-a", "vast", "1", time.time() + HOUR_S, OWN_END)
    text = run_async(lambda: write_lease(cast(Host, instance), lease)).description
    (written,) = instance.leases  # never one by another clock
    assert written.end_t - lease.end_t == pytest.approx(skew_s if reported else 0.0, abs=5.0)
    assert ("Its clock is" in text) is (reported is not None)
    assert reported is None or reported.split()[-1] in text

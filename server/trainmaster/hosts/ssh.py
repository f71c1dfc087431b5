"""A machine over SSH as a host."""

from __future__ import annotations

from trainmaster.host_record import HostRecord
from trainmaster.paths import Home


class SshHost:
    def __init__(self, record: HostRecord, home: Home) -> None:
        raise NotImplementedError

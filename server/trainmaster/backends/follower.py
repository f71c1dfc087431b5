"""The port that follows the runs of one place: copies what was written into their mirrors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainer_runtime.core.files.shared_quota import SharedQuota
from trainmaster.store.masking import Mask
from trainmaster.store.mirror import OpenFiles, PlacementMirror
from trainmaster.store.mirror_writer import UNLIMITED, MirrorWriter
from trainmaster.store.reserve import Room
from trainmaster.store.secrets_folder import SecretsFolder


@dataclass(frozen=True, slots=True)
class Followed:
    """A placement to follow.

    `mask` gives what masks the run's secrets as they are known at that moment, None where it has
    none. `over`: its host has nothing more to write, so everything is read to the end.
    `limit_bytes`: the most that the mirror may hold. `room`: that of its disk, and `total`: that of
    all mirrors; `secrets`: the folder that `mask` reads. These three are shared with others.
    """

    mirror: PlacementMirror
    mask: Callable[[], Mask | None]
    over: bool
    limit_bytes: int = UNLIMITED
    room: Room | None = None
    total: SharedQuota | None = None
    secrets: SecretsFolder | None = None

    def writer(self, files: OpenFiles | None = None) -> MirrorWriter:
        limit, room, total = self.limit_bytes, self.room, self.total
        return MirrorWriter(self.mirror, self.mask, limit, room, total, files=files)


@dataclass(slots=True)
class News:
    """The changes of one pass.

    `changed`: by run, the names of the mirrored files that have grown or were put aside. `failed`:
    runs whose mirror could not be written; they are read again in the next pass. `refused`: by run
    whose host sent what can't be taken, the finding's code and the reason in our own words; it is
    not read again. `more`: there is more to copy right now. `skew_s`: how far the host's clock is
    ahead of the client's, if known.
    """

    changed: dict[str, set[str]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)
    more: bool = False
    skew_s: float | None = None

    def note(self, run_id: str, name: str) -> None:
        self.changed.setdefault(run_id, set()).add(name)


class Follower(Protocol):
    """Follows for as long as its caller holds the host's follower lock."""

    async def copy_new(self, placements: Mapping[str, Followed]) -> News:
        """Copy into the mirrors of these runs what is new; bounded, see `News.more`.

        The same mapping as in the call before stands for the same placements: it is not read again.
        News of an attempt's end never precede that attempt's events. An original that was truncated
        or replaced starts again in the mirror, and its earlier copy is put aside.

        Raises:
            HostError: the place can't be reached, or was lost on the way; what was copied until
                then is in the mirrors. The follower is of no more use after it.
        """

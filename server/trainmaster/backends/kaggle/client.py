"""The port to Kaggle's API, implemented by a worker process with the official client.

That client prints to standard output, and exits without credentials: neither may affect a server
that speaks MCP over the same pipes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from trainmaster.errors.errors import CloudError


class SourcesLeftOutError(CloudError):
    """Kaggle accepted a push and started its session, but without some of its `sources`."""

    sources: tuple[str, ...] = ()


# Of a session's files those that are listed at most, far more than a run leaves.
MOST_OUTPUTS = 20_000
_WEEK_S = 7 * 24 * 3600.0
_LAST_T = 4e9  # in 2096

KernelState = Literal["queued", "running", "complete", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class Pushed:
    """`ref`: `owner/slug`; `version`: the version created by this push."""

    ref: str
    version: int
    url: str


@dataclass(frozen=True, slots=True)
class KernelStatus:
    """`message`: Kaggle's description of a failure."""

    state: KernelState
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel without its session. `version`: the newest, None if Kaggle does not state it.
    `marked`: its script contains the requested text."""

    version: int | None
    title: str
    marked: bool


@dataclass(frozen=True, slots=True)
class LogPage:
    """Events of a kernel's log, (stream, data) each, up to `next_index`, where the next page is.

    They begin at the requested index, or earlier if the log has been replaced. An event can be a
    part of a line, or contain several. `ended`: the log is complete.
    """

    events: Sequence[tuple[str, str]]
    next_index: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Quota:
    """GPU time of the week in seconds; `refresh_t`: when the next week begins, Unix seconds.

    `reserved_s`: time that running sessions may still use.
    """

    used_s: float
    total_s: float
    refresh_t: float | None
    reserved_s: float = 0.0

    @property
    def left_s(self) -> float:
        return max(0.0, self.total_s - self.used_s - self.reserved_s)


def quota_of(answer: Mapping[str, Any]) -> Quota:
    """A quota from the client's answer; what no week has is 0, or unknown."""
    used, total, reserved = (
        _within(answer.get(name), _WEEK_S) or 0.0 for name in ("used_s", "total_s", "reserved_s")
    )
    return Quota(used, total, _within(answer.get("refresh_t"), _LAST_T), reserved)


def _within(value: object, most: float) -> float | None:
    """A number from 0 to `most`; None for all else, NaN too."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= most:
        return None
    return float(value)


@dataclass(frozen=True, slots=True)
class KernelPush:
    """A kernel version to push. `slug`: without its owner, the account.

    `code`: the script. `timeout_s`: after this Kaggle ends the session. `kernel_sources` and
    `dataset_sources`: `owner/slug` each, mounted below /kaggle/input by their slug.
    """

    slug: str
    title: str
    code: str
    timeout_s: int
    gpu: bool
    internet: bool
    accelerator: str | None = None
    kernel_sources: Sequence[str] = ()
    dataset_sources: Sequence[str] = ()


class Kaggle(Protocol):
    """Each method raises `CloudError`: `KAGGLE_KEY_MISSING`, `KAGGLE_KEY_REFUSED`,
    `KAGGLE_UNREACHABLE` (the request may have taken effect), `KAGGLE_REFUSED`,
    `PACKAGE_MISSING`."""

    async def account(self) -> str:
        """The user name that owns the kernels and data sets."""

    async def push(self, push: KernelPush) -> Pushed:
        """Push a version, which starts a session. Sent once, without retries.

        Raises:
            SourcesLeftOutError: Kaggle accepted it without all of its sources.
        """

    async def status(self, ref: str) -> KernelStatus | None:
        """The state of the newest version's session; None if the kernel does not exist."""

    async def kernel(self, ref: str, marker: str) -> Kernel | None:
        """A kernel's newest version, which shows whether a push without a reply has arrived; None
        if the kernel does not exist. `marker`: a text contained in Trainmaster's scripts."""

    async def log(self, ref: str, after: int, wait_s: float) -> LogPage:
        """The newest session's log after an event's index, 0 for a new session; waits `wait_s` for
        the first event. Empty if the kernel does not exist."""

    async def outputs(self, ref: str) -> Sequence[str]:
        """The names of the newest session's output files; empty if it has none."""

    async def fetch_output(self, ref: str, name: str, path: Path) -> None:
        """Download one output file; `path` is replaced once it is complete."""

    async def quota(self) -> Quota:
        """This week's accelerator time."""

    async def put_dataset(self, slug: str, title: str, folder: Path) -> str:
        """Create a private data set from a folder's files, or its next version; returns
        `owner/slug` once it can be mounted."""

    async def dataset_state(self, slug: str) -> str | None:
        """`ready`, `failed`, or a state of its processing; None if it does not exist."""

    async def finished_dataset(self, slug: str) -> str | None:
        """Its state after its processing has ended, without a timeout."""

    async def datasets(self, search: str) -> Mapping[str, Any]:
        """The account's data sets by slug, with their fields in the list."""

    async def remove_dataset(self, slug: str) -> None:
        """Remove a data set. Idempotent."""

    async def close(self) -> None:
        """End the client's process. Idempotent."""

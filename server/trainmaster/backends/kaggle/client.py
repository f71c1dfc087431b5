"""What is asked of Kaggle, through the official client in a process of its own.

That client prints to standard output and exits where it has no credentials: neither may reach a
server that speaks MCP over the same pipes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from trainmaster.words.errors import CloudError


class SourcesLeftOutError(CloudError):
    """Kaggle took a push and started its session, but not all of its `sources`."""

    sources: tuple[str, ...] = ()


KernelState = Literal["queued", "running", "complete", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class Pushed:
    """`ref`: `owner/slug`; `version`: that this push has made."""

    ref: str
    version: int
    url: str


@dataclass(frozen=True, slots=True)
class KernelStatus:
    """`message`: Kaggle's own words on a failure."""

    state: KernelState
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """What is known of a kernel besides its session. `version`: the newest, None where Kaggle does
    not say. `marked`: its script holds the text that was asked for."""

    version: int | None
    title: str
    marked: bool


@dataclass(frozen=True, slots=True)
class LogPage:
    """Events of a kernel's log, (stream, data) each: those before `next_index`, where to go on.

    They begin at the index that was asked for; earlier where the log turned out to be another than
    what was read of it. An event need be no line: lines come in pieces, or without their ends.
    `ended`: the log is whole.
    """

    events: Sequence[tuple[str, str]]
    next_index: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Quota:
    """GPU time of the week in seconds; `refresh_t`: when it starts anew, Unix seconds.

    `reserved_s`: what sessions that run now may still use.
    """

    used_s: float
    total_s: float
    refresh_t: float | None
    reserved_s: float = 0.0

    @property
    def left_s(self) -> float:
        return max(0.0, self.total_s - self.used_s - self.reserved_s)


@dataclass(frozen=True, slots=True)
class KernelPush:
    """A kernel version to be pushed. `slug` without its owner, who is the account's.

    `code`: the one script. `timeout_s`: after which Kaggle ends the session. `kernel_sources` and
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
    """Raises, each of them: `CloudError`: `KAGGLE_KEY_MISSING`, `KAGGLE_KEY_REFUSED`,
    `KAGGLE_UNREACHABLE` (what was asked for may have happened), `KAGGLE_REFUSED`,
    `PACKAGE_MISSING`."""

    async def account(self) -> str:
        """The user name that kernels and data sets belong to."""

    async def push(self, push: KernelPush) -> Pushed:
        """Push a version, which starts a session. Sent once.

        Raises:
            SourcesLeftOutError: Kaggle took it, but not its sources.
        """

    async def status(self, ref: str) -> KernelStatus | None:
        """How the newest version's session stands; None where there is no such kernel."""

    async def kernel(self, ref: str, marker: str) -> Kernel | None:
        """A kernel's newest version, which tells whether a push whose reply was lost has arrived;
        None where there is no such kernel. `marker`: a text that scripts of ours hold."""

    async def log(self, ref: str, after: int, wait_s: float) -> LogPage:
        """The newest session's log from an event's index on, 0 where a session is new; waits
        `wait_s` for any. Nothing for a kernel that is not there."""

    async def outputs(self, ref: str) -> Sequence[str]:
        """The names of the files that the newest session has left; none where it left none."""

    async def fetch_output(self, ref: str, name: str, path: Path) -> None:
        """Bring one output file here; `path` is replaced once it is whole."""

    async def quota(self) -> Quota:
        """This week's accelerator time."""

    async def put_dataset(self, slug: str, title: str, folder: Path) -> str:
        """Make a private data set of a folder's files, or its next version; `owner/slug`, once it
        can be mounted."""

    async def dataset_state(self, slug: str) -> str | None:
        """`ready`, `failed`, or a word for what is still to be done; None: there is none."""

    async def settled_dataset(self, slug: str) -> str | None:
        """Its state once nothing is done to it any more, however long that takes."""

    async def datasets(self, search: str) -> Mapping[str, Any]:
        """Our own data sets by slug, with what the list tells of each."""

    async def remove_dataset(self, slug: str) -> None:
        """One that is gone is no error."""

    async def close(self) -> None:
        """End the client's process; may be repeated."""

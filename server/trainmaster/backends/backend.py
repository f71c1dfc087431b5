"""The port that services see: everything a run needs of the place where it stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from trainer_runtime.core.files.corpus import AskedSource, Listing
from trainer_runtime.core.protocol.desired import Desired
from trainmaster.backends.follower import Follower
from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.hosts.trees import OnTreeProgress

if TYPE_CHECKING:
    from trainmaster.plan.facts import HostFacts


class Backend(Protocol):
    """One place. Every method may be repeated: the second call finds the first one's work done.

    Raises, each of them: `HostError` where the place refuses or can't be reached.
    """

    name: str
    launcher_name: str

    async def facts(self, python: str | None) -> HostFacts:
        """What the machine has to offer; `python`: the interpreter that trains, None its own."""

    async def folder(self, run_id: str) -> str:
        """Where the run's folder lies there."""

    async def place(
        self, run_id: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        """Lay the run's folder down, `desired.json` included, wholly or not at all."""

    async def request(self, run_id: str, desired: Desired) -> None:
        """Tell the supervisor what is wanted now."""

    async def deliver_secrets(
        self, run_id: str, generation: int, values: Mapping[str, str]
    ) -> None:
        """Give a placed run the secrets for a request, in a file that its owner alone can read."""

    async def withdraw_secrets(self, run_id: str) -> bool:
        """Remove what the place still holds of an ended run's secrets, True if that was anything;
        where a supervisor does so by itself, nothing is left to do."""

    async def deliver_alerts(self, run_id: str, given: Mapping[str, Any]) -> None:
        """Give a placed run the alerts that its box sends, in a file of its owner alone."""

    async def start(self, run_id: str) -> bool:
        """Make sure that a supervisor runs; True if it had to be started."""

    def follower(self) -> AbstractAsyncContextManager[Follower]:
        """What follows runs there; connects when it is first asked, and lets go at its end."""

    async def examine_source(self, kind: str, target: str, begin: str) -> Mapping[str, Any]:
        """What is meant by a log, pane, session or process that is to be watched, as a run's config
        holds it; see `box.attach.examine_source`.

        Raises:
            HostError: it can't be watched.
        """

    async def look_at_output(self, python: str | None, folder: str) -> Mapping[str, Any]:
        """What an output folder of the place holds, every checkpoint read whole by `python` (None:
        whichever of the place has PyTorch); as `train.foreign.inspect` tells of it. Changes nothing.

        Raises:
            HostError: it is none that is known, or belongs to a run of ours; `ENVIRONMENT_UNUSABLE`
                where nothing has PyTorch.
        """

    async def list_corpus(self, asked: Sequence[AskedSource]) -> Sequence[Listing]:
        """The documents at these paths of the place, one listing each."""

    async def examine_input(self, kind: str, name: str, revision: str | None) -> Mapping[str, Any]:
        """A model's or a tokenizer's folder of the place, or what its cache of the hub holds under
        a name (`kind`: model, tokenizer, cached); see `box.answer.examine_input`."""

    async def has_shards(self, fingerprint: str) -> bool:
        """Whether the cache of the place holds the shards of a fingerprint, whole."""

    async def try_folder(self, path: str, *, write: bool) -> str | None:
        """Why nothing can be written into a folder of the place; None where it can. `write`: by
        writing there; else by its permissions alone, which changes nothing."""

    async def send(
        self,
        files: Sequence[TreeFile],
        destination: str,
        *,
        whole: bool = False,
        mark: bool = False,
        on_progress: OnTreeProgress | None = None,
    ) -> None:
        """Make a folder of the place hold exactly these files; see `hosts.trees.put_tree`."""

    async def refuse_upload(self, run_id: str, attempt: int, message: str) -> None:
        """Tell the preparation of an attempt that what it waits for does not come."""

    async def verify(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        """Read every byte of every checkpoint: `{"step", "path", "problems"}` each."""

    async def inspect(
        self, run_id: str, attempt: int, *, allow_py_spy: bool = False
    ) -> Mapping[str, Any]:
        """Where an attempt's processes stand: `verdict`, `pace`, `ranks`, `gpus`, `stacks` and
        `py_spy`, as `box.watch.inspection.described` gives them. Starts, stops and changes nothing.

        `allow_py_spy`: py-spy may read processes of an attached run.
        """

    async def files(self, run_id: str, pattern: str) -> Sequence[Mapping[str, Any]]:
        """What a pattern means in the run's folder: `{"path", "size", "mtime_ns", "sha256"}` each,
        or `{"skipped", "reason"}`; see `core.files.listing`."""

    async def read(self, run_id: str, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes of a file of the run's folder; empty where there is none."""

    async def digest(self, run_id: str, path: str, chunk: int, size_bytes: int) -> str | None:
        """The sha256 of a chunk (of 64 MiB) of a file's first `size_bytes`; None if it has less."""

    async def contents(self, run_id: str) -> list[str]:
        """The names in the run's folder, its checkpoints one by one."""

    async def disconnect(self) -> None:
        """End what connects to the place; may be repeated."""

    async def remove(self, run_id: str, names: Sequence[str]) -> int:
        """Remove these names from the run's folder, the folder itself for `.`; bytes freed."""

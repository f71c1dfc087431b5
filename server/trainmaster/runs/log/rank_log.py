"""The log of one rank of several, read from the machine that it is on, or from the folder that the
nodes of a job share."""

from __future__ import annotations

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.files.listing import ListedFile
from trainer_runtime.core.processes.rank_exits import RANKS, log_file
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.followed_files import TRAIN_LOG
from trainmaster.answers.runs import LogAnswer
from trainmaster.backends import RunFiles
from trainmaster.errors.errors import HostError, StateError, UsageError
from trainmaster.home.scratch_folder import scratch_folder
from trainmaster.runs.diagnosis.attempt_changes import newest_config
from trainmaster.runs.log.logs import read_log
from trainmaster.runs.status.node_states import members_of
from trainmaster.sync.mask_of_run import MaskOfRun
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_MOST_BYTES = 1 << 20


async def read_rank_log(
    workspace: Workspace, run: str, rank: int, *, grep: str | None = None, limit: int = 100
) -> LogAnswer:
    """The last lines that a rank of the newest attempt has printed; where ranks keep no logs of
    their own (a program's, an older run's), those of the log that all ranks of its machine share.

    Raises:
        StateError: `RUN_NOT_FOUND`, `SECRET_MISSING`.
        UsageError: `BAD_ARGUMENT`, the run has no such rank.
        HostError: its host can't be reached.
    """
    view = await refresh(workspace, run)
    node = _node_of(workspace, view, rank)
    members = members_of(view.run)
    host, below = (members[node - 1], "") if members and node else (view.run.host, "")
    if node and not members:
        below = f"nodes/{node}/"
    own, shared = (f"{below}attempts/{view.attempt}/{name}" for name in (_own(rank), TRAIN_LOG))
    data = await _last_bytes(workspace, view, host, own, is_needed=node > 0)
    if data is None and node == 0:
        return await read_log(workspace, view.run.run_id, grep=grep, limit=limit)
    if data is None:
        data = await _last_bytes(workspace, view, host, shared) or b""
    with scratch_folder("trainmaster-log-") as folder:
        file = folder / "train.log"
        file.write_bytes(_masked(workspace, view, data))
        return await read_log(workspace, str(file), grep=grep, limit=limit)


def _own(rank: int) -> str:
    return f"{RANKS}/{log_file(rank)}"


def _node_of(workspace: Workspace, view: RunView, rank: int) -> int:
    """The number of the machine that a rank of the newest attempt is on, among the run's.

    Raises:
        UsageError: `BAD_ARGUMENT`.
    """
    compute = _parsed(view, newest_config(workspace, view)).compute
    ranks, every = compute.processes, range(view.run.config.compute.nodes)
    each = max(1, ranks // max(1, compute.nodes))
    taking_part = [number for number in compute.taking_part if number in every]
    if not 0 <= rank < min(ranks, each * len(taking_part)):
        raise UsageError(
            "BAD_ARGUMENT",
            f"Run {view.run.run_id} has no rank {rank} in its newest attempt.",
            f"Name one of 0 to {ranks - 1}.",
            field="rank",
        )
    return taking_part[rank // each]


def _parsed(view: RunView, config: ConfigDocument) -> RunConfig:
    """An attempt's configuration; the launch's where the host wrote one that can't be read."""
    try:
        return RunConfig.parse(config)
    except DecodingError:
        return view.run.config


async def _last_bytes(
    workspace: Workspace, view: RunView, host: str, path: str, *, is_needed: bool = True
) -> bytes | None:
    """The end of one of the run's files; None where there is none. Unless it `is_needed`, also
    where its host does not give it out."""
    try:
        files = RunFiles.of(workspace.backend(host), run_id=view.run.run_id)
        listed = await files.list_files(view.run.run_id, path)
    except HostError:
        if is_needed:
            raise
        return None
    found = [one for one in listed if isinstance(one, ListedFile)]
    if not found:
        return None
    begin = max(0, found[0].size_bytes - _MOST_BYTES)
    data = await files.read_file(view.run.run_id, path, begin, _MOST_BYTES)
    return data.partition(b"\n")[2] if begin else data


def _masked(workspace: Workspace, view: RunView, data: bytes) -> bytes:
    """Raises:
    StateError: `SECRET_MISSING`, what would have to be masked is not known here any more.
    """
    if not view.run.config.secrets:
        return data
    mask = MaskOfRun(workspace.home, view.run.run_id)()
    if mask is None:
        raise StateError(
            "SECRET_MISSING",
            f"The secrets of {view.run.run_id} were removed, so that this log can't be masked.",
            f"Read the log of the first host: {command('logs', 'RUN')} without a rank.",
        )
    return mask.apply(data, final=True)

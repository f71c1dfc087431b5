"""Paths of one run's files on the host: the one place that builds them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.checkpoints.kept_checkpoints import PINNED_CHECKPOINTS
from trainer_runtime.core.files.below import Below
from trainer_runtime.core.lease.session import SESSION
from trainer_runtime.core.processes.nodes import NODES, NODES_END
from trainer_runtime.core.processes.rank_exits import RANKS
from trainer_runtime.core.protocol.desired import RECORD
from trainer_runtime.core.protocol.rendezvous import RENDEZVOUS
from trainer_runtime.host.files.files import read_json

_NODES = "nodes"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run. ARCHITECTURE.md says who may write what."""

    root: Path

    @property
    def run_id(self) -> str:
        """As its configuration says; a kernel's folder is not named by its run."""
        return str((read_json(self.config) or {}).get("run_id") or self.root.name)

    @property
    def host_root(self) -> Path:
        """The folder of the host that holds its runs, its cache and its lease."""
        return self.runs.parent

    @property
    def runs(self) -> Path:
        """The host's folder of runs."""
        is_node = self.root.parent.name == _NODES  # of a job, within the run's own folder
        return self.root.parents[2] if is_node else self.root.parent

    config = Below("config.json")
    desired = Below("desired.json")
    record = Below(RECORD)
    """What the client has on record of the run, for a client that lost it."""
    session = Below(SESSION)
    """Until when this place may be used; written by who begins a session, where one does."""
    given_up = Below("given_up.json")
    """Why no further job is submitted, for the supervisor to end the run by."""
    journal = Below("supervisor.jsonl")
    snapshot = Below("supervisor_snapshot.json")
    """What the supervisor has folded; it reads on from there when it is started again."""
    older_snapshot = Below("supervisor_snapshot.older.json")
    """The one before, where the newest is torn."""
    state = Below("state.json")
    status_page = Below("training_status.md")
    checkpoint_index = Below("checkpoints_index.json")
    checkpoints = Below("checkpoints")

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    nodes = Below(NODES)
    """This node's number and the run's secret, where a run has several hosts; 0600."""

    def node(self, rank: int) -> RunFolder:
        """The folder of another node of a job, where all nodes share this one."""
        return RunFolder(self.root / _NODES / str(rank))

    held_checkpoints = Below(PINNED_CHECKPOINTS)
    """The steps that no pruning takes, as a rewind may need them."""
    supervisor_lock = Below(".supervisor.lock")
    trainer_lock = Below(".trainer.lock")
    """Held by hold and, inherited, by the trainer and its children: one trainer per run."""
    secrets = Below(".secrets.json")
    """Values of secrets, its owner's alone; removed once nothing restarts by itself."""
    alerts = Below(".alerts.json")
    """Alerts that the host sends, with their addresses: for the owner alone, like secrets."""
    supervisor_errors = Below("logs", "supervisor.err")
    current_log = Below("logs", "train.log")

    def attempt(self, number: int) -> AttemptFolder:
        return AttemptFolder(self.root / "attempts" / str(number))


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    root: Path

    config = Below("config.json")
    environment = Below("environment.json")
    """The interpreter that the preparation settled on, and what its modules changed."""
    train_log = Below("train.log")
    setup_log = Below("setup.log")
    events = Below("events.jsonl")
    reported = Below("reported.jsonl")
    """What a program reports of itself."""
    process = Below("process.json")
    ranks = Below(RANKS)
    """Where each of several ranks notes its process and how it ended."""
    rendezvous = Below(RENDEZVOUS)
    """How this node's ranks meet those of the others."""
    nodes_end = Below(NODES_END)
    """What the other nodes had to do with its end; on node 0."""
    stacks = Below("stacks.txt")
    """The stacks of all processes, as they were last taken."""
    stacks_lock = Below(".stacks.lock")
    source = Below("source.jsonl")
    """Where the log of a training that is only watched was copied from."""
    exit = Below("exit.json")

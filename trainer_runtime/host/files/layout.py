"""Paths of one run's files on the host: the one place that builds them."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.checkpoints.pinned_checkpoints import PINNED_CHECKPOINTS
from trainer_runtime.core.lease.session import SESSION
from trainer_runtime.core.processes.nodes import NODES, NODES_END
from trainer_runtime.core.processes.rank_exits import RANKS
from trainer_runtime.core.protocol.desired import RECORD
from trainer_runtime.core.protocol.rendezvous import RENDEZVOUS
from trainer_runtime.core.records import dataclass
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

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def desired(self) -> Path:
        return self.root / "desired.json"

    @property
    def record(self) -> Path:
        """What the client has on record of the run, for a client that lost it."""
        return self.root / RECORD

    @property
    def session(self) -> Path:
        """Until when this place may be used; written by who begins a session, where one does."""
        return self.root / SESSION

    @property
    def given_up(self) -> Path:
        """Why no further job is submitted, for the supervisor to end the run by."""
        return self.root / "given_up.json"

    @property
    def journal(self) -> Path:
        return self.root / "supervisor.jsonl"

    @property
    def snapshot(self) -> Path:
        """What the supervisor has folded; it reads on from there when it is started again."""
        return self.root / "supervisor_snapshot.json"

    @property
    def older_snapshot(self) -> Path:
        """The one before, where the newest is torn."""
        return self.root / "supervisor_snapshot.older.json"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def status_page(self) -> Path:
        return self.root / "training_status.md"

    @property
    def checkpoint_index(self) -> Path:
        return self.root / "checkpoints_index.json"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    @property
    def nodes(self) -> Path:
        """This node's number and the run's secret, where a run has several hosts; 0600."""
        return self.root / NODES

    def node(self, rank: int) -> RunFolder:
        """The folder of another node of a job, where all nodes share this one."""
        return RunFolder(self.root / _NODES / str(rank))

    @property
    def held_checkpoints(self) -> Path:
        """The steps that no pruning takes, as a rewind may need them."""
        return self.root / PINNED_CHECKPOINTS

    @property
    def supervisor_lock(self) -> Path:
        return self.root / ".supervisor.lock"

    @property
    def trainer_lock(self) -> Path:
        """Held by hold and, inherited, by the trainer and its children: one trainer per run."""
        return self.root / ".trainer.lock"

    @property
    def secrets(self) -> Path:
        """Values of secrets, its owner's alone; removed once nothing restarts by itself."""
        return self.root / ".secrets.json"

    @property
    def alerts(self) -> Path:
        """Alerts that the host sends, with their addresses: for the owner alone, like secrets."""
        return self.root / ".alerts.json"

    @property
    def supervisor_errors(self) -> Path:
        return self.root / "logs" / "supervisor.err"

    @property
    def current_log(self) -> Path:
        return self.root / "logs" / "train.log"

    def attempt(self, number: int) -> AttemptFolder:
        return AttemptFolder(self.root / "attempts" / str(number))


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def environment(self) -> Path:
        """The interpreter that the preparation settled on, and what its modules changed."""
        return self.root / "environment.json"

    @property
    def train_log(self) -> Path:
        return self.root / "train.log"

    @property
    def setup_log(self) -> Path:
        return self.root / "setup.log"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def reported(self) -> Path:
        """What a program reports of itself."""
        return self.root / "reported.jsonl"

    @property
    def process(self) -> Path:
        return self.root / "process.json"

    @property
    def ranks(self) -> Path:
        """Where each of several ranks notes its process and how it ended."""
        return self.root / RANKS

    @property
    def rendezvous(self) -> Path:
        """How this node's ranks meet those of the others."""
        return self.root / RENDEZVOUS

    @property
    def nodes_end(self) -> Path:
        """What the other nodes had to do with its end; on node 0."""
        return self.root / NODES_END

    @property
    def stacks(self) -> Path:
        """The stacks of all processes, as they were last taken."""
        return self.root / "stacks.txt"

    @property
    def stacks_lock(self) -> Path:
        return self.root / ".stacks.lock"

    @property
    def source(self) -> Path:
        """Where the log of a training that is only watched was copied from."""
        return self.root / "source.jsonl"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"

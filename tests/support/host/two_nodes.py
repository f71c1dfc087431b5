"""Two nodes of a run on this machine: real supervisor, member, `hold` and `ranks` processes.

In place of torchrun and a framework are two small programs that do as these do, without torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.backends.tcp_proxy import free_port
from support.runs.running_run import wait_until

from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.core.processes.nodes import Node, NodesConfig
from trainer_runtime.core.protocol.journal import AttemptRecord, Record
from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.processes import BoxProcesses
from trainer_runtime.host.supervise.job import cancel_job, find_supervisor

REPOSITORY = Path(__file__).parents[3]
ADDRESS = "127.0.0.1"
NAMES = ("gpu1", "gpu2")
# What torchrun does with a static rendezvous: with the first rank that fails SIGTERM for the rest.
TORCHRUN = """\
import os, signal, subprocess, sys, time
options = sys.argv[1 : sys.argv.index("train.py")]
given = dict(zip(options[::2], options[1::2]))
each, node = int(given["--nproc-per-node"]), int(given["--node-rank"])
size = each * int(given["--nnodes"])
where = {"MASTER_ADDR": given["--master-addr"], "MASTER_PORT": given["--master-port"]}
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[sys.argv.index("train.py") :]],
        env={**os.environ, **where, "RANK": str(node * each + rank), "WORLD_SIZE": str(size)},
        start_new_session=True,
    )
    for rank in range(each)
]
def end(*_):
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        rank.wait()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
codes = [None] * each
while None in codes:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    codes = [rank.poll() for rank in ranks]
    if any(codes):
        end()
"""
# A "training" whose state depends on what every rank has contributed at every step.
TRAIN = """\
import json, os, pathlib, shutil, signal, socket, sys, threading, time
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.files.manifest import ChunkHasher, Manifest, build
from trainer_runtime.core.files.parts import Awaited, Part, forget_parts, hand_over
from trainer_runtime.core.processes.parent_death import die_with_parent
from trainer_runtime.core.protocol.lines import encode
die_with_parent()
rank, path = int(os.environ.get("RANK", "0")), pathlib.Path(sys.argv[1])
config = json.loads(path.read_text())
alone = config["compute"]["processes"] == 1
asked, seq, lock, in_flight, kept = [], 0, threading.Lock(), [], []
attempt, sharded = config["attempt"]["number"], "SHARDED" in os.environ
checkpoints = pathlib.Path("checkpoints")
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
def note(code):
    text = json.dumps({"pid": os.getpid(), "code": code, "t": time.time()})
    if not alone:
        ends = pathlib.Path(os.environ["TRAINMASTER_RANKS"], f"{rank}.json")
        write_atomic(ends, text.encode())
def leave(code):
    note(code)
    sys.exit(0 if code in (0, 75) and not alone else code)
def emit(kind, **fields):
    global seq
    with lock:
        if rank == 0:
            with path.with_name("events.jsonl").open("ab") as log:
                log.write(encode(seq, time.time(), kind, fields))
        seq += 1
def folder_of(step):
    return checkpoints / f"step-{step:08d}"
def end_save():
    while in_flight:
        in_flight.pop().join()
def save(step, state):
    end_save()
    if step in kept or (rank and not sharded):
        return
    kept.append(step)
    written = checkpoints / ".writing-by-framework" / str(step)
    written.mkdir(parents=True, exist_ok=True)
    (written / f"shard-{rank}.json").write_text(json.dumps([state, rank]))
    if rank:
        (written / "large").write_bytes(bytes(int(os.environ["SHARDED"])))
        hand_over(checkpoints, Part(attempt, step, 1), written)
        return
    (written / "state.json").write_text(json.dumps(state))
    awaited = Awaited(checkpoints, attempt, step, (1,) if sharded else ())
    awaited.ask()
    in_flight.append(threading.Thread(target=seal, args=(step, written, awaited)))
    in_flight[0].start()
def seal(step, written, awaited):
    awaited.gather(written)
    files = []
    for file in sorted(written.iterdir()):
        hasher = ChunkHasher()
        hasher.update(file.read_bytes())
        files.append(hasher.entry(file.name))
    manifest = Manifest(step, attempt, time.time(), {}, (), "", tuple(files))
    (written / "manifest.json").write_bytes(build(manifest))
    folder = folder_of(step)
    shutil.rmtree(folder, ignore_errors=True)
    written.rename(folder)
    awaited.forget()
    emit("checkpoint", action="saved", step=step, path=str(folder), size_bytes=9, metrics={})
    emit("checkpoint", action="verified", step=step)
    for old in sorted(checkpoints.glob("step-*"))[: -3 if sharded else 0]:
        shutil.rmtree(old)
        emit("checkpoint", action="pruned", step=int(old.name[5:]), path=str(old))
note(None)
if not alone:
    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if alone:
    other = None
elif rank == 0:
    other = socket.create_server(where).accept()[0]
else:
    while True:
        try:
            other = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.02)
stream = other and other.makefile("rwb")
def exchange(value):
    if alone:  # with the share of the other one
        return [state * 3, False] if step is not None else value
    try:
        stream.write(json.dumps(value).encode() + b"\\n")
        stream.flush()
        line = stream.readline()
    except OSError:
        line = b""
    if not line:
        print(f"rank {rank}: connection closed by peer", flush=True)
        leave(1)
    return json.loads(line)
candidates = config["attempt"]["resume"]["candidates"]
chosen = candidates[0] if candidates else 0
step = None
step = (chosen, exchange(chosen))[rank]
state = json.loads(folder_of(step).joinpath("state.json").read_text()) if step else 1
assert not step or folder_of(step).joinpath("manifest.json").exists()
if step and sharded:
    assert json.loads(folder_of(step).joinpath(f"shard-{rank}.json").read_text()) == [state, rank]
if rank == 0:
    shutil.rmtree(checkpoints / ".writing-by-framework", ignore_errors=True)
    forget_parts(checkpoints)
emit("started", step=step, target_step=config["steps"], resumed_from=step or None, world_size=2)
while step < config["steps"]:
    time.sleep(float(os.environ.get("STEP_TAKES", "0.005")))
    own = [state * (rank + 2), bool(asked)]
    theirs = exchange(own)
    step, state = step + 1, (state + own[0] + theirs[0] + step) % 1_000_003
    emit("metric", step=step, values={"loss": state})
    stops = own[1] or theirs[1]
    if step % 20 == 0 or stops:
        save(step, state)
    if stops:
        end_save()
        leave(75)
save(step, state)
end_save()
if rank == 0:
    emit("completed", step=step)
leave(0)
"""


class TwoNodes:
    """`folders[0]` has the supervisor, `folders[1]` its member; see `start`."""

    def __init__(
        self,
        root: Path,
        *,
        steps: int = 60,
        step_s: float = 0.005,
        silent_s: float = 3.0,
        sharded_bytes: int | None = None,
        min_nodes: int | None = None,
        await_nodes: str | None = None,
    ) -> None:
        """`sharded_bytes`: each rank writes its own part of a checkpoint, the second rank so much
        and more; None: the first writes all."""
        self.root, self.steps, self.step_s = root, steps, step_s
        self.environment = {} if sharded_bytes is None else {"SHARDED": str(sharded_bytes)}
        self.min_nodes, self.await_nodes = min_nodes, await_nodes
        self.run_ids = tuple(f"nodes{index}-{os.getpid()}" for index in range(2))
        self.folders = tuple(
            RunFolder(root / name / "runs" / run_id)
            for name, run_id in zip(NAMES, self.run_ids, strict=True)
        )
        self.port = free_port(ADDRESS)
        nodes = tuple(Node(name, ADDRESS) for name in NAMES)
        for rank, folder in enumerate(self.folders):
            self._make(rank, folder)
            given = NodesConfig(rank, self.port, "5e" * 32, nodes, silent_s)
            folder.nodes.write_text(json.dumps(given.to_dict()))
        self.ask("running", 1)

    def ask(self, state: str, generation: int, **fields: Any) -> None:
        request = {"state": state, "generation": generation, **fields}
        self.folders[0].desired.write_text(json.dumps(request))

    def start(self, *nodes: int) -> None:
        """Make sure that these have their supervisor or member; all of them unless named."""
        for node in nodes or (1, 0):
            command = [sys.executable, "-m", "trainer_runtime", "start", "."]
            done = subprocess.run(
                command, cwd=self.folders[node].root, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (done.stdout, done.stderr)

    def record(self) -> Record:
        """The run's history, from node 0's journal."""
        record = Record()
        journal = self.folders[0].journal
        for line in complete_lines(journal.read_bytes() if journal.exists() else b"")[0]:
            record.apply(decode(line))
        return record

    def until(self, state: str) -> Record:
        """Wait until the run has come to this state, closed where that is an end."""

        def come() -> Record | None:
            record = self.record()
            is_there = record.state.value == state
            return record if is_there and (record.closed or state == "running") else None

        return wait_until(come, f"the state {state}: {self.errors()}")

    def until_step(self, step: int, attempt: int = 1) -> None:
        wait_until(lambda: self.last_step(attempt) >= step, f"step {step} of attempt {attempt}")

    def last_step(self, attempt: int) -> int:
        return max((step for step in self.losses(attempt)), default=0)

    def losses(self, attempt: int) -> dict[int, float]:
        path = self.folders[0].attempt(attempt).events
        lines = complete_lines(path.read_bytes() if path.exists() else b"")[0]
        events = [decode(line).document for line in lines]
        return {e["step"]: e["values"]["loss"] for e in events if e["kind"] == "metric"}

    def attempt(self, number: int) -> AttemptRecord:
        return next(one for one in self.record().attempts if one.number == number)

    def checkpoints(self) -> list[int]:
        """The steps of the checkpoints on node 0."""
        found = self.folders[0].checkpoints.glob("step-*")
        return sorted(int(path.name.removeprefix("step-")) for path in found)

    def rank(self, number: int, attempt: int = 1) -> int:
        """The pid of a rank."""
        path = self.folders[number].attempt(attempt).ranks / f"{number}.json"
        return int(wait_until(lambda: read_json(path), f"rank {number}")["pid"])

    def trainer(self, attempt: int) -> int:
        """The pid of the first node's trainer."""
        path = self.folders[0].attempt(attempt).process
        return int(wait_until(lambda: read_json(path), "the trainer")["trainer"]["pid"])

    def shape(self, attempt: int) -> tuple[int, list[int], int]:
        """How many ranks an attempt had, on which nodes, and their accumulation."""
        config = read_json(self.folders[0].attempt(attempt).config) or {}
        compute = config["compute"]
        return compute["processes"], compute["taking_part"], config["batch"]["accumulation"]

    def supervisor(self, node: int) -> int:
        """The pid of a node's supervisor or member."""
        found = wait_until(lambda: find_supervisor(self.folders[node]), "the supervisor")
        return int(found.pid)

    def processes(self) -> dict[str, int]:
        """The pids of supervisor, member, and the newest attempt's ranks, as far as they run."""
        newest = self.record().attempts[-1].number
        found = {"supervisor": self.supervisor(0), "member": self.supervisor(1)}
        for number, folder in enumerate(self.folders):
            end = read_json(folder.attempt(newest).ranks / f"{number}.json") or {}
            if "pid" in end and end.get("code") is None:
                found[f"rank {number}"] = int(end["pid"])
        return found

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def errors(self) -> str:
        files = (folder.supervisor_errors for folder in self.folders)
        return " ".join(file.read_text()[-800:] for file in files if file.exists())

    def close(self) -> None:
        for folder in self.folders:
            cancel_job(folder)
            for path in (folder.root / "attempts").glob("*"):
                BoxProcesses(folder.root).kill(int(path.name))

    def _make(self, rank: int, folder: RunFolder) -> None:
        corpus = self.root / "gpu1" / "corpus"  # the second node has no such folder of its own
        config = stand_in_run(folder, corpus, self.steps, self.step_s)
        # Processes are found by the run's id: on one machine that would mix up both nodes'.
        config["run_id"] = self.run_ids[rank]
        config["env"].update(self.environment)
        config["compute"]["min_nodes"] = self.min_nodes
        config["recovery"]["await_nodes"] = self.await_nodes
        folder.config.write_text(json.dumps(config))


def stand_in_run(folder: RunFolder, corpus: Path, steps: int, step_s: float) -> dict[str, Any]:
    """Make a run's folder with the two programs, and its corpus; its configuration."""
    folder.root.mkdir(parents=True)
    (folder.root / "trainer_runtime").symlink_to(REPOSITORY / "trainer_runtime")
    (folder.root / "train.py").write_text(TRAIN)
    package = folder.root / "packages/torch/distributed"
    package.mkdir(parents=True)
    (package / "run.py").write_text(TORCHRUN)
    for place in (package, package.parent):
        (place / "__init__.py").touch()
    if not corpus.exists():
        corpus.mkdir(parents=True)
        (corpus / "a.txt").write_text("A line of text to learn from.\n" * 20)
    source = Source("main", str(corpus), list_files(corpus))
    path = f"{folder.root / 'packages'}:{REPOSITORY}"
    return {
        "run_id": folder.root.name,
        "name": "nodes",
        "framework": "litgpt",
        "steps": steps,
        "compute": {
            "device": "cpu",
            "processes": 2,
            "nodes": 2,
            "strategy": "ddp",
            "taking_part": [0, 1],
        },
        "batch": {"tokens": 64, "micro_batch": 2, "accumulation": 1},
        "checkpoint": {"every": 20, "metric": "val_loss"},
        "recovery": {"max_restarts": 3, "on_crash": "resume"},
        "limits": {},
        "env": {"PYTHONPATH": path, "STEP_TAKES": str(step_s)},
        "data": {
            "sources": [{"name": "main", "path": str(corpus), "format": "text"}],
            "tokenizer": "byte",
            "seq_len": 16,
            "fingerprint": fingerprint([source], "byte", 16),
            "cache_dir": str(folder.host_root / "cache"),
        },
    }


def expected_losses(steps: int) -> dict[int, float]:
    """What both ranks together compute without any interruption."""
    found, state = {}, 1
    for step in range(steps):
        state = (state + 2 * state + 3 * state + step) % 1_000_003
        found[step + 1] = float(state)
    return found

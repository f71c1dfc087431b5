"""A real Slurm for tests: munge, a controller, and two compute nodes, each with an address and
process numbers of its own; a third where it is named. The login node is this machine, or an `Sshd`
with `environment`.

Scheduling intervals are short. `node1` and `node2` have four CPUs each, `node2` two GPUs by name.
Jobs in partition `urgent` preempt those in others, which `cpu` gives ten seconds of grace.
With accounting, the controller forgets ended jobs soon, and `OPERATOR` may cancel those of others.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest
from support.backends.network_namespaces import Network
from support.runs.running_run import wait_until

NODES = ("node1", "node2")
OPERATOR = "nobody"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "slurmdbd", "mariadbd")
_OWN_PIDS = ("--pid", "--fork", "--kill-child", "--mount-proc")
_CONFIGURATION = """\
ClusterName=trainmaster
SlurmctldHost=control({control})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/control.pid
SlurmdPidFile={root}/%n.pid
SlurmctldLogFile={root}/control.log
SlurmdLogFile={root}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=20000,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=5
MinJobAge={forgotten_s}
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=node1 NodeAddr={node1} CPUs=4 RealMemory=4000
NodeName=node2 NodeAddr={node2} CPUs=4 RealMemory=4000 Gres=gpu:a100:2
{third}PartitionName=cpu Nodes={nodes} Default=YES MaxTime=60 GraceTime=10
PartitionName=urgent Nodes={nodes} MaxTime=60 PriorityTier=10
PartitionName=blink Nodes=node1 MaxTime=1
PartitionName=gpu Nodes=node2 MaxTime=UNLIMITED
PartitionName=members Nodes=node1 MaxTime=60 AllowAccounts=physics
PartitionName=closed Nodes=node1 State=DOWN
"""
_THIRD = "NodeName=node3 NodeAddr={node3} CPUs=4 RealMemory=4000\n"
_WITH_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={control}
AccountingStoragePass={root}/munge/socket
"""
_ACCOUNTING = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
DbdHost=control
DbdAddr={control}
SlurmUser=root
PidFile={root}/accounting.pid
LogFile={root}/accounting.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


class SlurmCluster:
    """`environment`: the variables by which Slurm's commands find this cluster."""

    def __init__(
        self, network: Network, *, accounting: bool = False, nodes: Sequence[str] = NODES
    ) -> None:
        self._network, self._nodes = network, nodes
        self._accounting = accounting
        self.root = Path(tempfile.mkdtemp(prefix="tm-slurm-"))
        self.root.chmod(0o755)
        self.environment = {"SLURM_CONF": str(self.root / "slurm.conf")}
        self._variables = {**os.environ, **self.environment}  # none of a single test's
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("control", *self._nodes):
            network.add(name)
        self._write_configuration()

    def start(self) -> SlurmCluster:
        munge = self.root / "munge"
        key = str(munge / "key")
        files = [f"--{name}={munge}/{name}" for name in ("pid-file", "log-file", "seed-file")]
        options = ["--foreground", "--force", "--num-threads=2", f"--socket={munge}/socket"]
        self._start("munge", "munged", *options, f"--key-file={key}", *files)
        wait_until((munge / "socket").exists, "munge")
        if self._accounting:
            self._start_accounting()
        self.start_controller()
        for node in self._nodes:
            self.start_node(node)
        wait_until(lambda: self._idle() == len(self._nodes), "idle nodes")
        return self

    def start_controller(self) -> None:
        self._start("control", "slurmctld", "-D")
        wait_until(lambda: self.run("scontrol", "ping", check=False).find("is UP") > 0, "a control")

    def stop_controller(self) -> None:
        """End the controller, which saves its state first; jobs continue without it."""
        self._started["control"].terminate()
        self._started["control"].wait(60)
        self._stop("control")

    def address(self, machine: str) -> str:
        return self._network.address(machine)

    def save_job(self, job: str) -> None:
        """Wait until the controller has written down the job as it is now: it does so within
        seconds of most changes, but not of a start by its backfill scheduler."""
        state = self.root / "state" / "job_state"
        before = state.stat().st_mtime_ns if state.exists() else 0
        self.run("scontrol", "update", f"jobid={job}", "comment=saved")
        wait_until(lambda: state.exists() and state.stat().st_mtime_ns > before, "a saved state")

    def kill_controller(self) -> None:
        """End the controller as a power cut would."""
        self._stop("control")

    def start_node(self, node: str) -> None:
        self._start(node, "slurmd", "-D", "-N", node)

    def fail_node(self, node: str) -> None:
        """End a compute node with all that runs there, as a power cut would."""
        self._stop(node)

    @contextmanager
    def hidden(self, folder: Path, *nodes: str) -> Iterator[None]:
        """These nodes, or all, have an empty folder there, as those that do not share it."""
        for node in nodes or self._nodes:
            self._on_node(node, "mount", "-t", "tmpfs", "tmpfs", str(folder))
        try:
            yield
        finally:
            for node in nodes or self._nodes:
                self._on_node(node, "umount", str(folder))

    @contextmanager
    def rule(self, node: str, *rule: str) -> Iterator[None]:
        """A node's routing has this rule, as `ip rule` takes it."""
        change = ["ip", "-n", self._network.namespace(node), "rule"]
        subprocess.run([*change, "add", *rule], check=True)
        try:
            yield
        finally:
            subprocess.run([*change, "del", *rule], check=True)

    @contextmanager
    def enforcing(self, *what: str) -> Iterator[None]:
        """The controller enforces these of accounting."""
        text = (self.root / "slurm.conf").read_text()
        self._restart_with(f"{text}AccountingStorageEnforce={','.join(what)}\n")
        try:
            yield
        finally:
            self._restart_with(text)

    def firewall(self, node: str, source: str) -> AbstractContextManager[None]:
        """A node drops connections that another one begins."""
        return self._network.firewall(node, source)

    def cancel_as_operator(self, job: str) -> None:
        """As somebody else than its owner."""
        self.run("setpriv", f"--reuid={OPERATOR}", "--clear-groups", "scancel", job)

    def accounted(self, name: str) -> list[dict[str, str]]:
        """The jobs of a name as accounting has them, the oldest first."""
        columns = ("JobIDRaw", "State", "Start", "End", "NodeList")
        shape = ("-nPX", f"--format={','.join(columns)}", "--starttime=now-1days")
        rows = self.run("sacct", *shape, f"--name={name}", times="%s").splitlines()
        found = [dict(zip(columns, row.split("|"), strict=True)) for row in rows]
        return sorted(found, key=lambda row: int(row["JobIDRaw"]))

    def run(self, *command: str, check: bool = True, times: str | None = None) -> str:
        """The output of one of Slurm's commands; `times`: the form of what it prints of them."""
        environment = {**os.environ, **self.environment}
        if times is not None:
            environment["SLURM_TIME_FORMAT"] = times
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0 or not check, (command, done.stdout, done.stderr)
        return done.stdout

    def jobs(self, name: str, states: str = "PENDING,RUNNING,COMPLETING") -> list[tuple[str, str]]:
        """Number and state of the jobs of a name."""
        rows = self.run("squeue", "-h", f"--states={states}", f"--name={name}", "-o", "%i %T")
        return [(row.split()[0], row.split()[1]) for row in rows.splitlines()]

    def last_words(self) -> str:
        """The ends of the programs' logs."""
        logs = sorted([*self.root.glob("*.out"), *self.root.glob("*.log")])
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in logs)

    def close(self) -> None:
        with suppress(AssertionError):
            self.run("scancel", "--signal=KILL", "--full", "--user=root", check=False)
        for name in reversed(list(self._started)):
            self._stop(name)
        shutil.rmtree(self.root, ignore_errors=True)

    def _restart_with(self, configuration: str) -> None:
        self.stop_controller()
        (self.root / "slurm.conf").write_text(configuration)
        self.start_controller()

    def _on_node(self, node: str, *command: str) -> None:
        """In the namespace of mounts that the node's daemon and all its jobs are in."""
        parent = self._started[node].pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        subprocess.run(["nsenter", f"--mount=/proc/{children[0]}/ns/mnt", *command], check=True)

    def _idle(self) -> int:
        return len(self.run("sinfo", "-h", "-N", "-p", "cpu", "-t", "idle").splitlines())

    def _start_accounting(self) -> None:
        database, socket = self.root / "database", self.root / "database.sock"
        database.mkdir()
        small = ["--innodb-buffer-pool-size=8M", "--innodb-log-file-size=4M"]
        quick = ["--innodb-flush-log-at-trx-commit=0", "--skip-grant-tables", "--user=root"]
        options = ["--no-defaults", f"--datadir={database}", *small, *quick]
        tables = Path("/usr/share/mysql/mysql_system_tables.sql").read_bytes()
        subprocess.run(
            ["/usr/sbin/mariadbd", *options, "--bootstrap"],
            input=b"create database mysql;\nuse mysql;\n" + tables,
            check=True,
            capture_output=True,
        )
        only_here = ["--skip-networking", f"--socket={socket}", f"--pid-file={self.root}/db.pid"]
        self._start("database", "mariadbd", *options, *only_here)
        wait_until(socket.exists, "a database")
        self._variables["MYSQL_UNIX_PORT"] = str(socket)
        self._start("accounting", "slurmdbd", "-D")
        add = ("sacctmgr", "-i", "add")
        wait_until(lambda: self._accepts(*add, "cluster", "trainmaster"), "accounting")
        self.run(*add, "account", "tests", "description=tests", "organization=tests")
        self.run(*add, "user", OPERATOR, "account=tests", "adminlevel=Operator")

    def _accepts(self, *command: str) -> bool:
        return subprocess.run(command, env=self._variables, capture_output=True).returncode == 0

    def _start(self, name: str, program: str, *arguments: str) -> None:
        """In the namespaces of the machine that it is on; its children end with it."""
        entering = []
        machine = "control" if name == "accounting" else name
        if machine in ("control", *self._nodes):
            entering = ["nsenter", f"--net=/run/netns/{self._network.namespace(machine)}"]
            entering += ["unshare", "--uts", *(_OWN_PIDS if name in self._nodes else ())]
            entering += ["sh", "-c", 'hostname "$0" && exec "$@"', machine]
        with (self.root / f"{name}.out").open("ab") as output:
            self._started[name] = subprocess.Popen(
                [*entering, f"/usr/sbin/{program}", *arguments],
                cwd=self.root,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _stop(self, name: str) -> None:
        process = self._started.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def _write_configuration(self) -> None:
        munge = self.root / "munge"
        for folder in (
            munge,
            self.root / "state",
            *(self.root / f"spool-{n}" for n in self._nodes),
        ):
            folder.mkdir(mode=0o755)
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o400)
        places = {name: self._network.address(name) for name in ("control", *self._nodes)}
        text = _CONFIGURATION + (_WITH_ACCOUNTING if self._accounting else "")
        forgotten_s = 10 if self._accounting else 300
        third = _THIRD.format(**places) if "node3" in self._nodes else ""
        given = {"forgotten_s": forgotten_s, "nodes": ",".join(self._nodes), "third": third}
        text = text.format(root=self.root, **given, **places)
        (self.root / "slurm.conf").write_text(text)
        accounting = self.root / "slurmdbd.conf"
        accounting.write_text(_ACCOUNTING.format(root=self.root, control=places["control"]))
        accounting.chmod(0o600)
        gpus = [
            f"NodeName=node2 Name=gpu Type=a100 File=/dev/{name}\n" for name in ("zero", "full")
        ]
        (self.root / "gres.conf").write_text("".join(gpus))
        (self.root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")


@contextmanager
def slurm_cluster(
    *, accounting: bool = False, nodes: Sequence[str] = NODES
) -> Iterator[SlurmCluster]:
    """A cluster whose nodes are idle; ended with all its jobs."""
    lacking = [name for name in _PROGRAMS if not _is_installed(name)]
    if lacking:
        pytest.fail(f"not installed: {', '.join(lacking)}; run `make setup`")
    with Network() as network:
        cluster = SlurmCluster(network, accounting=accounting, nodes=nodes)
        try:
            yield cluster.start()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{cluster.last_words()}") from error
        finally:
            cluster.close()


def _is_installed(program: str) -> bool:
    return shutil.which(program) is not None or Path("/usr/sbin", program).exists()

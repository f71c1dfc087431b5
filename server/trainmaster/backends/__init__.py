"""Where trainings run: the port that services see, its capabilities, and which backend a host's
name means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_runtime.core.protocol.command import command
from trainmaster.backends.backend import Backend
from trainmaster.backends.capabilities import (
    AlertSender,
    Capability,
    EndFinder,
    FolderTester,
    ImageTester,
    InputExaminer,
    InputReceiver,
    Inspector,
    JobRenewer,
    NodeProber,
    OutputReader,
    Profiler,
    RunFiles,
    RunReceiver,
    SourceExaminer,
    SupervisorFinder,
    TextSampler,
)
from trainmaster.errors.errors import HostError
from trainmaster.home.paths import Home
from trainmaster.store.host_record import HostRecord

if TYPE_CHECKING:
    from trainmaster.store.control import Control

LOCAL = "local"
DEBUG = "debug"
KAGGLE = "kaggle"
SLURM = "slurm"  # the launcher of a host on record
# Those that are there without a record; of the first two, whose files are this machine's.
HERE = (LOCAL, DEBUG)
NAMES = (*HERE, KAGGLE)


def open_backend(home: Home, host: str, record: HostRecord | None, control: Control) -> Backend:
    """The backend of a host's name; `record`: what is on record about it, where anything is.

    Runs that are on record lie where `control` says (on this machine they move with the home).

    Raises:
        HostError: `HOST_UNKNOWN`.
    """
    from trainmaster.backends.hosted import HostedBackend
    from trainmaster.backends.hosts import LocalHost

    if host == LOCAL:
        from trainmaster.backends.launchers.process import ProcessLauncher

        return HostedBackend(LocalHost(LOCAL, home.local_root), ProcessLauncher())
    if host == DEBUG:
        from trainmaster.backends.debug import DebugBackend

        return DebugBackend(LocalHost(DEBUG, home.debug_root))
    if host == KAGGLE:
        from trainmaster.backends.kaggle.backend import KaggleBackend
        from trainmaster.backends.kaggle.process import KaggleProcess

        return KaggleBackend(home, control, KaggleProcess(home))
    if record is not None:
        from trainmaster.backends.hosts.ssh import SshHost
        from trainmaster.backends.launchers.process import ProcessLauncher

        if record.launcher == SLURM:
            from trainmaster.backends.slurm.backend import SlurmBackend

            return SlurmBackend(
                SshHost(record, home),
                record,
                control.slurm,
                lambda run_id: control.recorded_folder(run_id, host),
            )
        return HostedBackend(
            SshHost(record, home),
            ProcessLauncher(),
            multiplexed=True,
            recorded=lambda run_id: control.recorded_folder(run_id, host),
        )
    raise HostError(
        "HOST_UNKNOWN",
        f"No host is called {host!r}.",
        f"Use {' or '.join(NAMES)}, one that {command('hosts')} lists, or add it: "
        f"{command('hosts add', host, 'USER@ADDRESS')}.",
    )


__all__ = [
    "DEBUG",
    "HERE",
    "KAGGLE",
    "LOCAL",
    "NAMES",
    "AlertSender",
    "Backend",
    "Capability",
    "EndFinder",
    "FolderTester",
    "ImageTester",
    "InputExaminer",
    "InputReceiver",
    "Inspector",
    "JobRenewer",
    "NodeProber",
    "OutputReader",
    "Profiler",
    "RunFiles",
    "RunReceiver",
    "SourceExaminer",
    "SupervisorFinder",
    "TextSampler",
    "open_backend",
]

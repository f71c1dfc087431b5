"""How a training is started: its command line, and the files beside config.json that it reads.

Pure and shared: the client renders the files into the bundle; the host writes them again next to
each attempt's config.json.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import accelerate, deepspeed, framework_of
from trainer_runtime.core.protocol.rendezvous import Rendezvous

SCRIPT = "train.py"
Launcher = Literal["python", "accelerate", "torchrun"]


def files(config: RunConfig) -> dict[str, str]:
    """As texts by name: the framework's own, and those of the launcher of several ranks."""
    written = framework_of(config.framework).files(config)
    if launcher(config) != "accelerate":
        return written
    all_ranks = config.compute.processes
    written[accelerate.FILE] = accelerate.text(config, all_ranks)
    if deepspeed.stage(config):
        written[deepspeed.FILE] = deepspeed.text(config, all_ranks)
    return written


def processes(config: RunConfig) -> int:
    """How many ranks of a training run on each machine."""
    return config.compute.processes // config.compute.nodes


def launcher(config: RunConfig) -> Launcher:
    """What starts the ranks. A sharded model needs a launcher for a single rank, too."""
    usual = framework_of(config.framework).launcher
    is_shared = deepspeed.stage(config) or accelerate.is_fsdp(config)
    if usual == "python" or (config.compute.processes == 1 and not is_shared):
        return "python"
    if config.compute.nodes > 1 and not is_shared:
        return "torchrun"
    return usual


def command(config: RunConfig, python: str, config_path: str) -> list[str]:
    """What starts an attempt, in the run's folder; `config_path` as seen from there."""
    if launcher(config) == "python":
        return [python, SCRIPT, config_path]
    return [python, "-m", "trainer_runtime", "ranks", config_path]


def launch_command(
    config: RunConfig, python: str, config_path: str, rendezvous: Rendezvous | None = None
) -> list[str]:
    """The launcher's own command line, which `ranks` runs and watches over."""
    script = [SCRIPT, config_path]
    if launcher(config) == "torchrun":
        # Not by the machine's name, which need not resolve.
        where = ["--standalone", "--local-addr", "127.0.0.1"]
        if rendezvous is not None:
            where = _meeting(rendezvous)
        ranks = ["--nproc-per-node", str(processes(config))]
        return [python, "-m", "torch.distributed.run", *where, *ranks, *script]
    folder = PurePosixPath(config_path).parent
    given = ["--config_file", str(folder / accelerate.FILE)]
    if deepspeed.stage(config):
        # The file itself names it as seen from where it lies.
        given += ["--deepspeed_config_file", str(folder / deepspeed.FILE)]
    if rendezvous is not None:
        given += _machines(config, rendezvous)
    return [python, "-m", "accelerate.commands.launch", *given, *script]


def _meeting(rendezvous: Rendezvous) -> list[str]:
    """Static: torchrun's `c10d` numbers nodes by the order of their addresses, and rank 0 has to
    be where the supervisor is."""
    return [
        *("--nnodes", str(rendezvous.nodes), "--node-rank", str(rendezvous.node)),
        *("--rdzv-backend", "static", "--rdzv-id", rendezvous.id),
        *("--master-addr", rendezvous.address, "--master-port", str(rendezvous.port)),
        *("--max-restarts", "0"),
    ]


def _machines(config: RunConfig, rendezvous: Rendezvous) -> list[str]:
    """The same in the words of `accelerate launch`, which runs torchrun; its file has the rest."""
    return [
        *("--num_machines", str(rendezvous.nodes), "--machine_rank", str(rendezvous.node)),
        *("--main_process_ip", rendezvous.address, "--main_process_port", str(rendezvous.port)),
        # Otherwise DeepSpeed's own launcher, by SSH from the first machine.
        *(("--deepspeed_multinode_launcher", "standard") if deepspeed.stage(config) else ()),
    ]


def variables(config: RunConfig, rendezvous: Rendezvous | None = None) -> dict[str, str]:
    """What the launcher finds in its environment, unless it says otherwise there already."""
    found = {"OMP_NUM_THREADS": str(config.compute.threads or 1)}
    if config.compute.device == "cpu":
        found["DS_ACCELERATOR"] = "cpu"  # DeepSpeed would otherwise search for one
    if rendezvous is None:
        # Ranks of one machine connect over it.
        found |= {"GLOO_SOCKET_IFNAME": "lo"} if config.compute.device == "cpu" else {}
    elif rendezvous.interface is not None:
        found |= dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), rendezvous.interface)
    return found

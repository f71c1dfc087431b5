"""Facts that a plan is made from besides the spec: the host, the corpus, earlier runs.

Services measure them, partly on other machines, and pass them as JSON; planning only reads them.
"""

from __future__ import annotations

import re
from statistics import median
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from trainer_runtime.core.config.tokenizer_training import TokenizerTraining
from trainer_runtime.core.environment.gpus import gpu_label
from trainer_runtime.core.files import corpus
from trainmaster.plan.architecture import Experts

# An absolute path that can't be read as a sentence or as more than one word of a command.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+@-]{1,160}")


class Facts(BaseModel):
    """Immutable; fields that a newer probe adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


# What a machine reports may show in plans and errors: a name from a closed alphabet, a version.
GpuLabel = Annotated[str, AfterValidator(gpu_label)]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z.+!_-]{0,64}$")]


class GpuFacts(Facts):
    """One GPU as nvidia-smi lists it; `capability` is its compute capability, None if unknown."""

    index: int
    name: GpuLabel
    memory_gib: float
    memory_free_gib: float
    driver: Version = ""
    capability: float | None = None


class TorchFacts(Facts):
    """The PyTorch of the interpreter that would train."""

    version: Version
    cuda: Version | None = None
    cuda_available: bool = False
    bf16_gpu: bool = False


class SessionFacts(Facts):
    """A host that provides sessions from a weekly quota of accelerator hours.

    `hours`: the maximum length of a session, of which `usable_hours` are left for training.
    `refresh_t`: when the next quota starts, Unix seconds; None if unknown.
    """

    hours: float
    usable_hours: float
    internet: bool
    quota_left_h: float
    quota_total_h: float
    refresh_t: float | None = None


class SlurmFacts(Facts):
    """The partition of a cluster that jobs go to, the options of jobs, and one of its nodes.

    `limit_s`: of a job, None for none. `gres`, `time`: what the host was added with; `time`: the
    most that a job asks for, such as `12h`. `nodes`: how many there are, `gpu_nodes` of them
    with its type of GPU, None for all; a job gets at most `max_nodes`, None for all. `gpu_type`:
    of its GPUs, where other nodes of the partition have others. `used_up`: of what nothing is left:
    whose (an account's, a QOS's), the resource, and how many minutes of it there were.
    """

    partition: str
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    modules: str | None = None
    time: str | None = None
    limit_s: float | None = None
    cpus: int = 1
    memory_mib: int = 0
    gpus: int = 0
    gpu_type: str | None = None
    nodes: int = 1
    gpu_nodes: int | None = None
    max_nodes: int | None = None
    used_up: tuple[tuple[str, str, int], ...] = ()


class HostFacts(Facts):
    """The machine. `cores` counts what the quota grants, and may be a fraction.

    `hostname` is the name that the operator gave it. `root` is the host's folder for runs,
    `disk_free_gib` the free space of its disk. `cache` is the folder of shared data, in the root if
    None, and `cache_free_gib` the free space of its disk if that is another one.
    `measured_at` is Unix time in seconds. `c_compiler` and `venv_available` (whether the
    interpreter can create environments and install into them) are None if not probed; `pip` is its
    version of pip, `uv` the path of uv. `engines`: the container engines on the search path, None
    if not probed. `packages` are the versions of the frameworks' packages,
    None if not probed. `wheels`: the folder of the spec's wheels once they were sent.
    `alike`: how many machines like this one the training may have, where another engine gives them.
    `usd_per_hour` and `lease_end_t` (Unix time of the lease's end) are set for rented instances.
    """

    hostname: str
    root: str
    cpu_model: str = ""
    cores: float
    memory_total_gib: float
    memory_available_gib: float
    disk_free_gib: float
    gpus: tuple[GpuFacts, ...] = ()
    python_path: str = ""
    python_version: Version = ""
    torch: TorchFacts | None = None
    bf16_cpu: bool = False
    venv_available: bool | None = None
    pip: Version | None = None
    packages: dict[str, Version] | None = None
    uv: str | None = None
    wheels: str | None = None
    root_writable: bool = True
    cache: str | None = None
    cache_free_gib: float | None = None
    cache_writable: bool = True
    c_compiler: bool | None = None
    engines: tuple[str, ...] | None = None
    usd_per_hour: float | None = None
    lease_end_t: float | None = None
    measured_at: float | None = None
    sessions: SessionFacts | None = None
    slurm: SlurmFacts | None = None
    alike: int = 1

    @property
    def python_label(self) -> str:
        """The interpreter for sentences and commands to paste: its path if that is a plain one."""
        return self.python_path if _PLAIN_PATH.fullmatch(self.python_path) else "python3"

    @property
    def cache_folder(self) -> str:
        return self.cache or f"{self.root.rstrip('/')}/cache"


class FolderFacts(Facts):
    """A folder that a training starts from: a model's or a tokenizer's.

    `path` or `hub` is the spec's, `revision` the hub's commit. `sent_as`: its name below the host's
    folder for models, once it was uploaded or downloaded from the hub; None for a folder of the
    host. `files` are the names and sizes of what is transferred, `listing` the digest of an upload.
    `problem` states why it can't be used, under an error's `code`.
    """

    path: str | None = None
    hub: str | None = None
    revision: str | None = None
    sent_as: str | None = None
    files: tuple[tuple[str, int], ...] = ()
    listing: str | None = None
    problem: str | None = None
    code: str | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes that are transferred to the host."""
        return sum(size for _, size in self.files) if self.sent_as is not None else 0

    def folder(self, cache: str) -> str:
        """The folder on the host; `cache` is the host's cache."""
        if self.sent_as is not None:
            return f"{cache}/models/{self.sent_as}"
        return (self.path or "").removeprefix(corpus.ON_BOX)


class ModelFacts(FolderFacts):
    """Existing weights, as their folder's or the hub's config.json describes them; None: not given.

    `kind` is hf or litgpt, by the layout. `tied`: input and output embedding are one matrix. `d_ff`
    and `experts`: see `Architecture`. `max_positions`: the longest sequence that they support.
    `gated`: whether the feed-forward has a third matrix, None where its family says so.
    `decoder_layers`: of an encoder-decoder, whose other sizes are the encoder's.
    `matrices`: see `core.files.model_folder`. `architectures`: the classes that config.json names,
    None if not probed. `missing`: that there are no weights, which planning can do without.
    """

    kind: str = "hf"
    model_type: str = ""
    architectures: tuple[str, ...] | None = None
    missing: str | None = None
    is_decoder: bool = False
    is_encoder_decoder: bool = False
    parameters: int | None = None
    n_layer: int | None = None
    n_head: int | None = None
    n_kv_head: int | None = None
    d_model: int | None = None
    d_ff: int | None = None
    d_head: int | None = None
    experts: Experts | None = None
    gated: bool | None = None
    decoder_layers: int | None = None
    vocab_size: int | None = None
    tied: bool | None = None
    max_positions: int | None = None
    weights_bytes: int = 0
    matrices: tuple[str, ...] = ()
    has_tokenizer: bool = False
    chat_template: bool = False


class TokenizerFacts(FolderFacts):
    """A tokenizer other than the byte tokenizer. `digest` identifies its tokens;
    `vocab_size` is None if not probed. `of_model`: it is in the model's folder, and transferred
    with it. `packages`: what else the environment needs to read it. `chat_template`, `mask`:
    whether it has one, `sentinels`: how many; None if not probed. `training`: how the host trains
    it; `tiktoken`: the encoding that the host converts; None for others. `bytes_per_token`: an
    estimate for text."""

    digest: str = ""
    training: TokenizerTraining | None = None
    tiktoken: str | None = None
    bytes_per_token: float = 4.0
    packages: tuple[str, ...] = ()
    vocab_size: int | None = None
    of_model: bool = False
    chat_template: bool | None = None
    mask: bool | None = None
    sentinels: int | None = None


class ProgramData(FolderFacts):
    """What a program reads: the source `name`, a folder or a single file of this name in one."""

    name: str
    file: str | None = None

    def place(self, cache: str) -> str:
        """Its path on the host; `cache` is the host's cache."""
        folder = self.folder(cache)
        return folder if self.file is None or self.sent_as is None else f"{folder}/{self.file}"


class CodeFacts(FolderFacts):
    """A program's folder. `in_place`: it is of the host, and run there. `digest`: of names and
    contents; `commit` and `dirty` are git's, None without. `left`: what stays behind, in words.
    `data`: what it reads beside its own files."""

    in_place: bool = False
    digest: str = ""
    commit: str | None = None
    dirty: bool | None = None
    left: tuple[str, ...] = ()
    total_bytes: int = 0
    data: tuple[ProgramData, ...] = ()


class Throughput(Facts):
    """The throughput of one earlier run; `flops_per_s` as `architecture.flops_per_token` counts.

    `device` is `cpu` or the GPU's name.
    """

    device: str
    precision: str
    flops_per_s: float


class Calibration(Facts):
    """Measured throughput of runs that share framework, strategy and size, the newest first."""

    measured: tuple[Throughput, ...] = ()

    def flops_per_s(self, device: str, precision: str) -> float | None:
        """The median for a device and precision, or None."""
        figures = [
            entry.flops_per_s
            for entry in self.measured
            if (entry.device, entry.precision) == (device, precision)
        ]
        return median(figures) if figures else None

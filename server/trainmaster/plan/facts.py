"""Facts that a plan is made from besides the spec: the host, the corpus, earlier runs.

Services measure them, partly on other machines, and pass them as JSON; planning only reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from trainer_runtime.core.environment.gpus import gpu_label
from trainer_runtime.core.files import corpus
from trainer_runtime.core.inputs.token_files import validation_names
from trainmaster.plan.architecture import Experts

_BYTE = "byte"
# For English text and current vocabularies; other languages and code take more tokens.
_BYTES_PER_TOKEN = 4
# Of a source's files, how many a plan names.
_NAMED = 3
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


class SourceFacts(Facts):
    """One source's files; `problem` states why they can't be counted.

    `path` is the spec's, with `host:` for files of the host. `sent_as`: the path of uploaded files
    below the folder of their fingerprint; None for files of the host. `examples`: rows of a data
    set, 0 for running text and if not counted. `malformed`: the problem of its rows. `format` is
    the spec's. `held_out`: it is of `data.validation`; `trained_on`: which of its files are read by
    the training, too. `own_validation`: how many files of tokens are named as validation, and
    `beside` one that lies beside a file given alone. `names`: the first files that are read of a
    folder; `undecodable`, `left_out`, `left_name`, `chats`: see `core.files.corpus.Listing`.
    """

    name: str
    path: str
    sent_as: str | None = None
    files: int = 0
    size_bytes: int = 0
    tokens: int = 0
    examples: int = 0
    format: str = corpus.TEXT
    problem: str | None = None
    malformed: str | None = None
    held_out: bool = False
    trained_on: str | None = None
    own_validation: int = 0
    beside: str | None = None
    names: tuple[str, ...] = ()
    undecodable: int = 0
    left_out: int = 0
    left_name: str | None = None
    chats: bool = False


class CorpusFacts(Facts):
    """The sources in the spec's order, then those of `data.validation`. `cached`: the host already
    has their shards; `listing`: the digest of the uploaded files; `estimated`: the tokens were not
    counted."""

    sources: tuple[SourceFacts, ...]
    fingerprint: str
    listing: str | None = None
    cached: bool = False
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Those of the sources to train on, with what of them is held out."""
        return sum(source.tokens for source in self.training)

    @property
    def examples(self) -> int:
        """Those of the sources to train on, with what of them is held out."""
        return sum(source.examples for source in self.training)

    @property
    def training(self) -> tuple[SourceFacts, ...]:
        return tuple(source for source in self.sources if not source.held_out)

    @property
    def validation(self) -> tuple[SourceFacts, ...]:
        return tuple(source for source in self.sources if source.held_out)

    @property
    def sent(self) -> tuple[SourceFacts, ...]:
        return tuple(source for source in self.sources if source.sent_as is not None)

    @classmethod
    def of(
        cls,
        listed: Sequence[corpus.Source],
        tokenizer: str,
        seq_len: int,
        form: str = corpus.SHARDS,
        *,
        sent_as: Mapping[str, str] | None = None,
    ) -> Self:
        """The facts of sources whose files were listed; `sent_as`: by name, the uploaded ones.
        `tokenizer` is byte, or the digest of another one.

        Tokens of text are counted for the byte tokenizer: one per byte, and one at the end of each
        file. Others are estimated.
        """
        sent = sent_as or {}
        estimated = tokenizer != _BYTE or any(entry.format != corpus.TEXT for entry in listed)
        per_token = 1 if tokenizer == _BYTE else _BYTES_PER_TOKEN
        ready = {entry.name for entry in listed if entry.format == "tokens"}
        sources = tuple(
            SourceFacts(
                name=source.name,
                path=source.path,
                sent_as=sent.get(source.name),
                files=len(source.files),
                size_bytes=source.size_bytes,
                tokens=source.size_bytes // (2 if source.name in ready else per_token)
                + len(source.files),
                format=source.format,
                held_out=source.held_out,
                own_validation=_own_validation(source),
                names=tuple(file.name for file in source.files[:_NAMED]),
            )
            for source in listed
        )
        uploads = [source for source in listed if source.name in sent]
        return cls(
            sources=sources,
            fingerprint=corpus.fingerprint(listed, tokenizer, seq_len, form),
            listing=corpus.listing_digest(uploads) if uploads else None,
            estimated=estimated,
        )


def _own_validation(source: corpus.Source) -> int:
    if source.format != "tokens" or source.held_out:
        return 0
    names = [file.name for file in source.files if file.name.endswith(".bin")]
    return len(validation_names(names))


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
    with it. `packages`: what else the environment needs to read it. `chat_template`: whether it
    has one, None if not probed."""

    digest: str = ""
    packages: tuple[str, ...] = ()
    vocab_size: int | None = None
    of_model: bool = False
    chat_template: bool | None = None


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

"""Machines that are planned for and not there: by the names of their GPUs, as people write them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_runtime.core.environment.gpus import GPUS, Gpu, find_gpu, gpu_names
from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.inputs.hub_dataset import PREFIX as HUB
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES
from trainmaster.errors.errors import PlanError
from trainmaster.plan.corpus_facts import CorpusFacts, SourceFacts
from trainmaster.plan.facts import GpuFacts, HostFacts
from trainmaster.plan.list_prices import ListPrice, list_price
from trainmaster.plan.spec import TrainingSpec

# Usual sizes for each GPU, where nobody states them.
_CORES_PER_GPU = 8.0
_MEMORY_PER_GPU_GIB = 64.0
# The least of the clouds' machines with large GPUs: AWS p4de.24xlarge, 1,152 GiB for 640 GB.
_MEMORY_PER_GPU_MEMORY = 1.8
_PLENTY_GIB = 16384.0
FREE_SHARE = 0.95
_ROOT = "/root/.trainmaster"
# Machines have up to so many GPUs; more are several machines.
_GPUS_PER_NODE = 8
_MOST_GPUS = 4096
# `8xH100`, `8 H100`, `h100:8`, `h100 x8`, `h100 8x`.
_COUNTED = (
    re.compile(r"(?P<count>\d+)\s*[x*×]\s*(?P<name>\S.*)", re.IGNORECASE),
    re.compile(r"(?P<count>\d+)\s+(?P<name>\S.*)"),
    re.compile(r"(?P<name>.*\S)\s*[:*x×]\s*(?P<count>\d+)", re.IGNORECASE),
    re.compile(r"(?P<name>.*\S)\s+(?P<count>\d+)\s*[x×]", re.IGNORECASE),
)
_MEMORY = re.compile(r"(\d+)\s*gi?b\b", re.IGNORECASE)
# Of what a name has, to what a table has: in decimal units, and less what the driver keeps.
_MEMORY_TOLERANCE = 0.15
# What may stand beside a GPU's name and changes nothing.
_BESIDE = re.compile(
    r"nvidia|geforce|quadro|tesla|rtx|gpus?|sxm\d?|pcie|nvl|nvlink|hbm\d?e?|gi?b|\d+gi?b?|tensor|core|"
    r"ada|ampere|hopper|blackwell|lovelace|generation|server|workstation|edition|pro|max|q",
)
# What stands before a GPU's name, and the GPUs where nothing follows.
_MAKERS_WORDS = re.compile(r"nvidia|geforce|quadro|tesla|rtx|[\s_-]+")
_RTX = ("5090", "4090", "3090", "a6000", "6000ada", "pro6000")
_AMD = re.compile(r"mi\d{2,3}x?|instinct|radeon|gaudi|tpu", re.IGNORECASE)
# Rows of a data set that is not there: as many as Alpaca's 52,002 about.
ASSUMED_ROWS = 50_000
_ASSUMED_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Destination:
    """A machine to plan for, or `nodes` alike. `on`: its name in answers; `gpus`: of each node.
    `price_source`: whose price `facts.usd_per_hour` is, None without one."""

    on: str
    facts: HostFacts
    gpu: str
    gpus: int
    nodes: int = 1
    price_source: str | None = None


def destination_of(text: str, *, field: str = "on") -> Destination:
    """`h100:8`, `8xH100`, `A100 80GB`, `h100:32` (four machines of eight).

    Raises:
        PlanError: GPU_NOT_FOUND with the nearest names; INVALID_VALUE for a number of GPUs.
    """
    name, count = _parts(text.strip())
    if ":" in name or "*" in name:
        raise _wrong_count(f"`{field}` is {text.strip()!r}, which has no count of GPUs", field)
    gpu = _gpu(name)
    if gpu is None:
        raise _unknown(name, field)
    nodes = max(1, count // _GPUS_PER_NODE)
    if not 1 <= count <= _MOST_GPUS:
        raise _wrong_count(f"`{field}` asks for {count:,} GPUs", field)
    if count > _GPUS_PER_NODE and count % _GPUS_PER_NODE:
        raise _wrong_count(
            f"`{field}` asks for {count:,} GPUs, which are not whole machines", field
        )
    price = list_price(gpu.name)
    usd = None if price is None else price.usd_per_gpu_h * count
    on = f"{gpu.name}:{count}"
    facts = imagined_host(on, gpu.name, count // nodes, gpu.memory_gib)
    facts = facts.model_copy(update={"alike": nodes, "usd_per_hour": usd})
    return Destination(on, facts, gpu.name, count // nodes, nodes, _source(price))


def destinations_with_more(destination: Destination) -> list[Destination]:
    """The same GPUs, twice as many at a time: of one machine up to eight, of eight GPUs up to eight
    machines."""
    count, larger = destination.gpus * destination.nodes, []
    most = _GPUS_PER_NODE if count < _GPUS_PER_NODE else _GPUS_PER_NODE * count
    if find_gpu(destination.gpu) is None or destination.facts.sessions is not None:
        return []
    while count < most:
        count = 1 << count.bit_length()  # the next power of two
        larger.append(destination_of(f"{destination.gpu}:{count}"))
    return larger


def imagined_host(name: str, gpu: str, count: int, gpu_memory_gib: float) -> HostFacts:
    """A machine with so many GPUs of a kind, and usual sizes of what else it has."""
    memory_gib = max(_MEMORY_PER_GPU_GIB, _MEMORY_PER_GPU_MEMORY * gpu_memory_gib) * count
    return HostFacts(
        hostname=name,
        root=_ROOT,
        cores=_CORES_PER_GPU * count,
        memory_total_gib=memory_gib,
        memory_available_gib=memory_gib * FREE_SHARE,
        disk_free_gib=_PLENTY_GIB,
        gpus=tuple(
            GpuFacts(
                index=index,
                name=gpu,
                memory_gib=gpu_memory_gib,
                memory_free_gib=gpu_memory_gib,
            )
            for index in range(count)
        ),
        python_path="python3",
        python_version="3.11",
        venv_available=True,
        c_compiler=True,
    )


def spec_for(spec: TrainingSpec, destination: Destination) -> TrainingSpec:
    """The spec with all GPUs of a destination."""
    compute = {
        "gpus": destination.gpus,
        "gpu": None,
        "gpu_memory_gib": None,
        "nodes": destination.nodes,
    }
    return spec.model_copy(update={"compute": spec.compute.model_copy(update=compute)})


def with_assumed_data(
    spec: TrainingSpec, corpus: CorpusFacts, *, of_host_alone: bool = False
) -> tuple[CorpusFacts, bool]:
    """The facts with assumptions for sources that are not here, and whether there are any: as much
    text as the training reads once, or 50,000 rows. `of_host_alone`: what is not here by mistake
    stays a problem."""
    lacking = [
        source
        for source in corpus.sources
        if source.path.startswith((ON_BOX, HUB, *STORES)) or (source.problem and not of_host_alone)
    ]
    if not lacking:
        return corpus, False
    tokens = (spec.tokens if isinstance(spec.tokens, int) else 0) // len(lacking)
    sources = tuple(
        SourceFacts(
            name=source.name,
            path=source.path,
            format=source.format,
            held_out=source.held_out,
            files=1,
            size_bytes=_ASSUMED_BYTES,
            tokens=tokens,
            examples=ASSUMED_ROWS // len(lacking),
        )
        if source in lacking
        else source
        for source in corpus.sources
    )
    return corpus.model_copy(update={"sources": sources, "estimated": True}), True


def _parts(text: str) -> tuple[str, int]:
    """The name and the count of GPUs; one where none is written. Of several ways to read it the
    first that names a GPU."""
    matches = [match for pattern in _COUNTED if (match := pattern.fullmatch(text)) is not None]
    read = [(match["name"], int(match["count"])) for match in matches]
    counted = next((parts for parts in [(text, 1), *read] if _gpu(parts[0]) is not None), None)
    return counted or next(iter(read), (text, 1))


def _gpu(name: str) -> Gpu | None:
    """The GPU of a name all of whose words are understood."""
    gpu = None if re.search(r"[,:*×]", name) else find_gpu(name)
    if gpu is None or not _has_memory(name, gpu.memory_gib):
        return None
    own = set(gpu.name.split("-")) | {str(round(gpu.memory_gib)), "6000"}
    words = (word for word in re.split(r"[^a-z0-9]+", name.lower()) if word)
    is_known = all(
        word in own
        or _BESIDE.fullmatch(word)
        or (word.isdecimal() and _is_about(int(word), gpu.memory_gib))
        or ((named := find_gpu(word)) is not None and named.name.split("-")[0] in own)
        for word in words
    )
    return gpu if is_known else None


def _has_memory(name: str, memory_gib: float) -> bool:
    """Whether a name has no size of memory, or that of the GPU."""
    written = _MEMORY.search(name)
    return written is None or _is_about(int(written[1]), memory_gib)


def _is_about(written_gib: int, memory_gib: float) -> bool:
    return abs(written_gib / memory_gib - 1) < _MEMORY_TOLERANCE


def _wrong_count(what: str, field: str) -> PlanError:
    return PlanError(
        "INVALID_VALUE",
        f"{what}.",
        f"Give 1 to {_GPUS_PER_NODE} of them, or a multiple of {_GPUS_PER_NODE} up to "
        f"{_MOST_GPUS:,}, as in h100:8.",
        field=field,
    )


def _source(price: ListPrice | None) -> str | None:
    return None if price is None else f"{price.provider}'s list price of {price.read_on}"


def _unknown(name: str, field: str) -> PlanError:
    if _AMD.search(name):
        why = ", and no framework here is installed for other makers' accelerators than NVIDIA's."
    else:
        near = _near(name.lower())
        why = f". Did you mean {', '.join(near)}?" if near else "."
    return PlanError(
        "GPU_NOT_FOUND",
        f"`{field}` names {name!r}, which the table of GPUs does not know{why}",
        f"Name one of {gpu_names()}, with how many: h100:8"
        + ("; kaggle; or offers." if field == "on" else "."),
        field=field,
    )


def _near(name: str) -> Sequence[str]:
    """The nearest names, without a maker's words; of `rtx` alone all that are called so."""
    bare = _MAKERS_WORDS.sub("", name)
    if not bare and ("rtx" in name or "geforce" in name):
        return _RTX
    return difflib.get_close_matches(bare or name, [gpu.name for gpu in GPUS], n=3, cutoff=0.4)

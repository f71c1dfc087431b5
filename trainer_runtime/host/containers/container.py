"""A run's containers: the command that starts one, and those that an engine has of the run.

What is inside is as on the host: paths, pids, user and network are the same, so that everything
that watches, signals and ends a training's processes does so from outside, as for any process.
Variables with secrets are no part of the command: `inside` reads them from the run's folder.
"""

from __future__ import annotations

import os
import pwd
import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import DecodingError, Fields
from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.files.private import UMASK_VARIABLE
from trainer_runtime.core.records import dataclass
from trainer_runtime.host.containers.engine import Answer, Engine, ask_engine
from trainer_runtime.host.files.files import read_json

RUN_LABEL = "trainmaster.run"
# Of the host's variables these are seen inside, where they are set: who may be reached and how,
# which GPUs, which network interface. Everything else is the image's, or stands under `env`.
_PASSED_ON = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("CUDA_VISIBLE_DEVICES", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TZ", UMASK_VARIABLE),
)
_PASSED_ON_PREFIX = "NCCL_"
_HOME = "home"
_STOPPED_AFTER_S = 120
_ALL_OF_HOST = ("--network", "host", "--pid", "host")
_NOTHING = ("--network", "none")
_UNIT = {"m": 2**20, "g": 2**30, "t": 2**40}
_INSIDE = "trainer_runtime.host.containers.inside"
# A container's program that could not be started, in the engines' own words.
NOT_STARTED = 125


@dataclass(frozen=True, slots=True)
class Image:
    """The image of an attempt, as its preparation settled it. `python`: the interpreter in it."""

    engine: Engine
    name: str
    id: str
    python: str
    digest: str | None = None

    @classmethod
    def find(cls, record: Path) -> Image | None:
        """The image that `environment.json` names; None where the trainer is a process."""
        settled = read_json(record) or {}
        section = settled.get("container")
        if not isinstance(section, dict):
            return None
        fields = Fields(section, "container")
        return cls(
            engine=Engine.of(fields),
            name=fields.text("image"),
            id=fields.text("id"),
            python=str(settled.get("python")),
            digest=fields.find_text("digest"),
        )

    def to_dict(self) -> dict[str, Any]:
        """The `container` of `environment.json`."""
        return {**self.engine.to_dict(), "image": self.name, "id": self.id, "digest": self.digest}


def container_name(run_id: str, attempt: int) -> str:
    return f"{run_id}-{attempt}"


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a run. `run`: the run's folder, absolute. `config`: the path of the attempt's
    configuration as seen from there. `marker`: the variable that its processes carry. `alone`: it
    has neither a network nor anything of the host, as an image's that is tried before a launch."""

    image: Image
    run: Path
    config: RunConfig
    config_path: Path
    marker: Mapping[str, str]
    alone: bool = False

    def trainer_command(self, attempt: int, words: Sequence[str], log: Path) -> list[str]:
        """Starts the trainer and returns; its output goes to `log`, seen from the run's folder."""
        name = container_name(self.config.run_id, attempt)
        return self._command(("--detach", "--name", name), {}, [str(log), *words])

    def command(self, words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        """Runs a command in a container of its own to its end; the output is the command's."""
        return self._command(("--rm",), variables, ["-", *words])

    def _command(
        self, how: Sequence[str], variables: Mapping[str, str], inner: Sequence[str]
    ) -> list[str]:
        inside = ["-m", _INSIDE, str(self.config_path), *inner]
        return [*self.plain(how, variables), self.image.id, *inside]

    def plain(self, how: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        """The command up to the image, whose interpreter is its program."""
        engine, compute = self.image.engine, self.config.compute
        return [
            *(engine.program, "run", *how),
            *("--label", f"{RUN_LABEL}={self.config.run_id}"),
            *(_NOTHING if self.alone else _ALL_OF_HOST),
            *(*_user(engine), *_groups(engine)),
            *("--shm-size", f"{_bytes(compute.shm_size)}b"),
            *("--security-opt", "label=disable", "--no-healthcheck"),
            *("--stop-timeout", str(0 if self.alone else _STOPPED_AFTER_S), *_limits(engine)),
            *(_gpus(engine) if compute.device == "cuda" else ()),
            *(() if self.alone else _volumes(self.config, self.run)),
            *("--workdir", str(self.run)),
            *_environment({**_own_variables(self.config), **variables, **self.marker}),
            *("--entrypoint", self.image.python),
        ]


def containers(engine: Engine, run_id: str) -> list[str]:
    """The engine's containers of a run, ended ones too."""
    label = f"label={RUN_LABEL}={run_id}"
    listed = ask_engine(engine.program, "ps", "--all", "--quiet", "--filter", label)
    return listed.output.split()


def remove_containers(engine: Engine, run_id: str) -> None:
    """Remove what is left of a run's containers, running or ended."""
    left = containers(engine, run_id)
    if left:
        ask_engine(engine.program, "rm", "--force", *left)


def inspect_container(engine: Engine, name: str, template: str) -> Answer:
    """What the engine says of a container."""
    return ask_engine(engine.program, "container", "inspect", "--format", template, name)


def unmountable(config: RunConfig, run: Path) -> str | None:
    """A path that the engine's `--volume` can't name; None where there is none."""
    return next((path for path, _ in _mounted(config, run) if ":" in path), None)


def home(config: RunConfig) -> Path:
    """The home folder inside, shared by runs: caches of compiled kernels and the like."""
    return Path(config.data.cache_dir) / _HOME


def _user(engine: Engine) -> tuple[str, ...]:
    """Files of the training belong to whom the supervisor runs as, who is root in a container of
    their own engine (to be themselves there takes subordinate ids, and a copy of the image)."""
    if engine.rootless:
        return ("--user", "0:0")
    same = ("--userns", "host") if engine.kind == "docker" else ()
    return (*same, "--user", f"{os.getuid()}:{os.getgid()}")


def _groups(engine: Engine) -> Iterator[str]:
    """The user's further groups, by which it may read data. In a user's own engine the container
    has them as they are, if at all: Podman asks crun for that, and runc can only where the account
    has no subordinate ids."""
    if not engine.rootless:
        for group in sorted({*os.getgroups()} - {os.getgid()}):
            yield from ("--group-add", str(group))
    elif Path(engine.program).name == "podman":
        yield from ("--group-add", "keep-groups")


def _limits(engine: Engine) -> Iterator[str]:
    """The supervisor's own limits: Podman would raise them, which not every account may.

    It lowers its own limit of processes to the largest pid, and nothing that it starts has more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield from ("--ulimit", f"nofile={soft}:{hard}")
    if engine.kind == "podman":
        pids = int(Path("/proc/sys/kernel/pid_max").read_text())
        own = resource.getrlimit(resource.RLIMIT_NPROC)
        soft, hard = (
            pids if limit == resource.RLIM_INFINITY else min(limit, pids) for limit in own
        )
        yield from ("--ulimit", f"nproc={soft}:{hard}")


def _gpus(engine: Engine) -> tuple[str, ...]:
    """All GPUs; which of them the training takes, CUDA_VISIBLE_DEVICES says, inside as outside."""
    if engine.kind == "podman":
        return ("--device", "nvidia.com/gpu=all")
    return ("--gpus", "all")


def _volumes(config: RunConfig, run: Path) -> Iterator[str]:
    for path, mode in _mounted(config, run):
        yield from ("--volume", f"{path}:{path}:{mode}")


def _mounted(config: RunConfig, run: Path) -> list[tuple[str, str]]:
    """The run's folder, the cache, and what the training reads of the host outside of both."""
    written = [str(run), config.data.cache_dir]
    script = config.script
    if script is not None and script.folder.startswith("/"):
        written.append(script.folder)
    read = [source.path.removeprefix(ON_BOX) for source in config.data.sources]
    read += script.data.values() if script is not None else ()
    read += [config.data.tokenizer, config.model.path or "", *_adopted(config)]
    mounts = [(path, "rw") for path in dict.fromkeys(written) if _is_there(path)]
    for path in dict.fromkeys(read):
        if _is_there(path) and not any(_lies_in(path, other) for other, _ in mounts):
            mounts.append((path, "ro"))
    return mounts


def _adopted(config: RunConfig) -> list[str]:
    return [config.adopt.folder] if config.adopt is not None else []


def _is_there(path: str) -> bool:
    return path.startswith("/") and os.path.exists(path)


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _own_variables(config: RunConfig) -> dict[str, str | None]:
    passed: dict[str, str | None] = {
        name: None
        for name in os.environ
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIX)
    }
    # An account that the image does not know has no home there, and no name.
    name = _user_name()
    return {**passed, "HOME": str(home(config)), "USER": name, "LOGNAME": name}


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "trainer"


def _environment(variables: Mapping[str, str | None]) -> Iterator[str]:
    """None: the value that the engine's program has, which its command line does not show."""
    for name, value in variables.items():
        yield from ("--env", name if value is None else f"{name}={value}")


def _bytes(size: str | None) -> int:
    """Of a size such as `16g`."""
    if not size or not size[:-1].isdigit() or size[-1].lower() not in _UNIT:
        raise DecodingError("compute", "shm_size", "is not a size such as 16g")
    return int(size[:-1]) * _UNIT[size[-1].lower()]

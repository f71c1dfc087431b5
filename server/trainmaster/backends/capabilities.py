"""Optional capabilities of backends. A service asks for a capability by its class:

    inspector = Inspector.of(workspace.backend(host))

A backend declares a capability by inheriting from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from trainer_runtime.core.protocol.command import command, of_run, option
from trainmaster.backends.backend import Backend
from trainmaster.errors.errors import HostError

if TYPE_CHECKING:
    from trainer_runtime.core.answers.averaged import AverageAnswer, AverageRequest
    from trainer_runtime.core.answers.sampled import SampleAnswer, SampleRequest
    from trainer_runtime.core.diagnosis.stacks.report import InspectionReport
    from trainer_runtime.core.environment.image_problem import ImageAnswer
    from trainer_runtime.core.files.checkpoint_check import CheckpointCheck
    from trainer_runtime.core.files.corpus import AskedSource, Listing
    from trainer_runtime.core.files.foreign_output import FoundOutput
    from trainer_runtime.core.files.listing import LeftOut, ListedFile
    from trainer_runtime.core.files.model_folder import ModelFolder
    from trainer_runtime.core.files.tokenizer_folder import TokenizerFolder
    from trainer_runtime.core.processes.nodes import NodesConfig
    from trainer_runtime.core.processes.reaching import Peer
    from trainer_runtime.core.protocol.profile import ProfileRequest
    from trainmaster.backends.hosts.tree_files import TreeFile
    from trainmaster.backends.hosts.trees import OnTreeProgress


class Capability(ABC):
    """`cannot` completes "NAME can't …" for a backend without it; `instead` says what to do.

    Raises, each method of each capability: `HostError` where the place refuses or can't be reached.
    """

    cannot: ClassVar[str]
    instead: ClassVar[str]

    @classmethod
    def of(cls, backend: Backend, *, field: str | None = None, run_id: str | None = None) -> Self:
        """The backend as one that has this capability; `field`: of the spec that asks for it,
        `run_id`: the run that it is needed for.

        Raises:
            HostError: `UNSUPPORTED`, it has not.
        """
        capability = cls.find(backend)
        if capability is None:
            message = f"{backend.name} can't {cls.cannot}."
            instead = cls.instead if run_id is None else of_run(cls.instead, run_id)
            raise HostError("UNSUPPORTED", message, instead, field=field)
        return capability

    @classmethod
    def find(cls, backend: Backend) -> Self | None:
        """As `of`; None where the backend has not this capability."""
        return backend if isinstance(backend, cls) else None


class JobRenewer(Capability):
    """Changes what the next jobs of a placed run ask for."""

    cannot = "change what jobs ask for"
    instead = f"Name a cluster: a host that was added with {option('--launcher', 'slurm')}."

    @abstractmethod
    async def renew_job(self, run_id: str, job: Mapping[str, Any], script: bytes) -> None:
        """Replace the run's job by `job`, the section of its config, and `script`; where that is
        refused, nothing has changed."""


class InputExaminer(Capability):
    """Reads data, models and tokenizers that lie at the place, for planning."""

    cannot = "read data, models or tokenizers of its own"
    instead = "Name a path of this machine, without `host:`, or a model of the hub."

    @abstractmethod
    async def list_corpus(self, asked: Sequence[AskedSource]) -> Sequence[Listing]:
        """The documents at these paths, one listing each."""

    @abstractmethod
    async def examine_model(self, path: str) -> ModelFolder:
        """The model in a folder."""

    @abstractmethod
    async def examine_tokenizer(self, path: str) -> TokenizerFolder:
        """The tokenizer in a folder."""

    @abstractmethod
    async def cached_from_hub(self, name: str, revision: str | None) -> str | None:
        """The folder of a model in the place's own cache of the hub; None where it has none."""


class InputReceiver(Capability):
    """Takes the files that a run waits for into the cache that runs share."""

    cannot = "be sent files for its cache"
    instead = "Name data and models that are there already."

    @abstractmethod
    async def has_shards(self, fingerprint: str) -> bool:
        """Whether the cache holds the shards of a fingerprint, whole."""

    @abstractmethod
    async def send(
        self,
        files: Sequence[TreeFile],
        destination: str,
        *,
        whole: bool = False,
        mark: bool = False,
        on_progress: OnTreeProgress | None = None,
    ) -> None:
        """Make a folder of the cache hold exactly these files; see `hosts.trees.put_tree`."""

    @abstractmethod
    async def refuse_upload(self, run_id: str, attempt: int, message: str) -> None:
        """Fail the preparation of an attempt: the files that it waits for will not come."""


class RunReceiver(Capability):
    """Receives a run that is migrated from another place."""

    cannot = "take over a run from another host"
    instead = "Launch it again there."

    @abstractmethod
    async def put_run(self, run_id: str, files: Sequence[TreeFile]) -> None:
        """Make the run's folder hold exactly these files; nothing is started."""


class FolderTester(Capability):
    """Tests folders outside of the root, such as a second disk for checkpoints."""

    cannot = "write to a folder of its own"
    instead = "Use `operator`, which copies checkpoints to this machine."

    @abstractmethod
    async def test_folder(self, path: str, *, write: bool) -> str | None:
        """Why nothing can be written into a folder; None where it can. `write`: by writing there;
        else by its permissions alone, which changes nothing."""


class ImageTester(Capability):
    """Tests the images that trainings in containers name."""

    cannot = "run containers"
    instead = "Remove compute.launcher and compute.image, or choose another host."

    @abstractmethod
    async def find_image(self, name: str) -> ImageAnswer:
        """Whether the place has an image; nothing of it is run, and nothing is pulled."""

    @abstractmethod
    async def try_image(self, config: Mapping[str, Any], lines: Sequence[str]) -> ImageAnswer:
        """Whether a run of this config, which needs the packages of `lines`, could train in its
        image: what is there is run for that, without the run's folder, data or network; for the
        rest its registry is asked, and nothing is pulled."""


class AlertSender(Capability):
    """Sends a run's alerts from the place itself, without a connection to the client."""

    cannot = "send alerts"
    instead = f"Install the keeper, which sends them from here: {command('keeper install')}."

    @abstractmethod
    async def deliver_alerts(self, run_id: str, config: Mapping[str, Any]) -> None:
        """Give a placed run its alerts, in a file that only its owner can read."""


class SupervisorFinder(Capability):
    """Finds the supervisors of many runs at a time."""

    cannot = "list which of its runs are supervised"
    instead = f"Ask for each run: {command('status', 'RUN')}."

    @abstractmethod
    async def supervised(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs that have a supervisor now; one question, however many they are."""


class EndFinder(Capability):
    """Finds how the last sessions of ended runs have ended, which the place learns only later."""

    cannot = "say how jobs have ended"
    instead = f"The run's journal says how its attempts have ended: {command('status', 'RUN')}."

    @abstractmethod
    async def learn_ends(self, run_ids: Sequence[str]) -> None:
        """Ask for them, in one question; what is found is kept for those that read."""


class RunFiles(Capability):
    """Lists and reads the files of a run's folder."""

    cannot = "give out files"
    instead = (
        f"What is mirrored of the run is here: {command('status', 'RUN')}, "
        f"{command('logs', 'RUN')} and {command('metrics', 'RUN')}."
    )

    @abstractmethod
    async def list_files(self, run_id: str, pattern: str) -> Sequence[ListedFile | LeftOut]:
        """The files of the run's folder that match a pattern; see `core.files.listing`."""

    @abstractmethod
    async def read_file(self, run_id: str, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes of a file of the run's folder; empty where there is none."""

    @abstractmethod
    async def chunk_digest(self, run_id: str, path: str, chunk: int, size_bytes: int) -> str | None:
        """The sha256 of a chunk (of 64 MiB) of a file's first `size_bytes`; None if it has less."""

    @abstractmethod
    async def verify_checkpoints(self, run_id: str) -> Sequence[CheckpointCheck]:
        """Read every byte of every checkpoint."""


class NodeProber(Capability):
    """Takes part in trainings on several hosts."""

    cannot = "take part in a training on several hosts"
    instead = "List hosts that are reached over SSH, or name a single one."

    @abstractmethod
    async def clock(self) -> float:
        """Its Unix time, in seconds."""

    @abstractmethod
    async def addresses(self) -> Sequence[str]:
        """Its IPv4 addresses."""

    @abstractmethod
    async def listen(
        self, port: int, nonce: str, nodes: Sequence[str], within_s: float
    ) -> str | None:
        """Wait for connections of these nodes; why the port can't be used, None where it can."""

    @abstractmethod
    async def connect(
        self, node: str, addresses: Sequence[str], port: int, nonce: str, within_s: float
    ) -> Mapping[str, object]:
        """Connect to a node that listens; see `box.answer.reach.connect`."""

    @abstractmethod
    async def reach_others(
        self, own: Peer, others: Sequence[Peer], nonce: str, within_s: float
    ) -> Mapping[str, str] | str:
        """Listen as `own` says, and connect to the others, which all do so meanwhile: why not, of
        those that can't be connected to; a sentence, why the port can't be used."""

    @abstractmethod
    async def deliver_nodes(self, run_id: str, config: NodesConfig) -> None:
        """Give a placed run what it has to know of its nodes, in a file of its owner's alone."""

    @abstractmethod
    async def end_member(self, run_id: str) -> bool:
        """Kill a run's member with all that it runs here; False where there is none."""

    @abstractmethod
    async def given_nodes(self, run_id: str) -> NodesConfig | None:
        """What a placed run was given by `deliver_nodes`; None before."""


class Inspector(Capability):
    """Samples the processes of a run."""

    cannot = "be asked for the stacks of its processes"
    instead = f"{command('logs', 'RUN')} shows its output; stalls are detected there by itself."

    @abstractmethod
    async def inspect(
        self, run_id: str, attempt: int, *, allow_py_spy: bool = False
    ) -> InspectionReport:
        """Sample an attempt's processes. Starts, stops and changes nothing.

        `allow_py_spy`: py-spy may read processes of an attached run.
        """


class Profiler(Capability):
    """Asks the trainer of a run for a profile of its next steps."""

    cannot = "ask a trainer for a profile"
    instead = f"{command('diagnose', 'RUN', '--speed')} judges its speed by what it records."

    @abstractmethod
    async def request_profile(self, run_id: str, request: ProfileRequest) -> None:
        """Write the request to where the trainer reads it; the answer is among its events."""


class TextSampler(Capability):
    """Lets a run's model write text, and averages its checkpoints."""

    cannot = "run a model outside its training"
    instead = (
        f"{command('fetch', 'RUN', 'final', 'FOLDER')} brings the model; its framework samples it."
    )

    @abstractmethod
    async def sample(self, run_id: str, request: SampleRequest) -> SampleAnswer:
        """Texts by a process of the run's environment, which ends with the call.

        Raises:
            HostError: `NOT_SAMPLED`, with the reason.
        """

    @abstractmethod
    async def average(
        self, run_id: str, steps: Mapping[str, Sequence[int]], request: AverageRequest
    ) -> AverageAnswer:
        """The mean of the checkpoints of these `steps` by run, in the folder of `run_id`, by a
        process of its environment, which ends with the call. The request names no runs.

        Raises:
            HostError: `NOT_AVERAGED`, with the reason.
        """


class SourceExaminer(Capability):
    """Examines running trainings, to attach to them."""

    cannot = "watch a training that others started"
    instead = "Attach on a host with a shell."

    @abstractmethod
    async def examine_source(
        self, kind: str, target: str, begin: str, pattern: str | None = None
    ) -> Mapping[str, Any]:
        """A log, pane, session or process as the source in a run's config; see
        `box.attach.examine_source`.

        Raises:
            HostError: it can't be watched.
        """


class OutputReader(Capability):
    """Reads output folders of other trainings, to adopt them."""

    cannot = "read an output folder"
    instead = "Copy it here and adopt it from `local`."

    @abstractmethod
    async def read_output(self, python: str | None, folder: str) -> FoundOutput:
        """The contents of an output folder, checkpoints read whole by `python` (None: whichever
        interpreter of the place has PyTorch). Changes nothing.

        Raises:
            HostError: it is not a known kind of output, or belongs to a Trainmaster run;
                `ENVIRONMENT_UNUSABLE` where no interpreter has PyTorch.
        """

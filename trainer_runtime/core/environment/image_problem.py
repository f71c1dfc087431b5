"""Why nothing can be trained in an image, and what to change: said before a launch by the client,
and by the preparation on the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.decoding import Fields

# What Podman puts before the names of images that were built on the host.
OF_NO_REGISTRY = "localhost/"
_WHAT = {
    "engine": "compute.launcher is docker, and no container engine answers: {said}",
    "local": "compute.image {full} is not among the images of this account on the host, and no "
    f"registry has what is named {OF_NO_REGISTRY}…",
    "pull": "compute.image {full} can't be pulled: {said}",
    "processor": "compute.image {image} is for {said}",
    "no_python": "compute.image {image} has no Python: it needs `python3` (3.10 or newer) and "
    "PyTorch",
    "old_python": "compute.image {image} has Python {said}, and the runtime needs 3.10 or newer",
    "packages": "{said} of compute.image {image} lacks {lacking}",
    "torch": "PyTorch of compute.image {image} can't be used on {said}",
    "start": "{engine} can't start a container of {image}: {said}",
}
_REMEDY = {
    "engine": "install Podman (on Debian and Ubuntu `apt install podman`) or Docker for this "
    "account, or leave out compute.launcher",
    "local": "build or load it there with the account that trains (`{engine} images` lists that "
    "account's)",
    "pull": "check its name and tag, and log in on the host where it is private (`{engine} login`)",
    "processor": "name one that is built for the host's processor",
    "no_python": "name an image that has both, such as one of pytorch/pytorch",
    "old_python": "name an image with a newer one",
    "packages": "name an image that has it, or build one: `FROM {image}` and `RUN {python} -m pip "
    "install {quoted}`",
    "torch": "name an image whose PyTorch is built for this host",
    "start": "try `{engine} run {image}`",
}
_NVIDIA = re.compile(r"nvidia|capabilities: \[\[gpu\]\]|CDI device", re.IGNORECASE)
_NVIDIA_REMEDY = (
    "install the NVIDIA Container Toolkit on the host; for Podman also run "
    "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
)


@dataclass(frozen=True, slots=True)
class ImageProblem:
    """`kind`: one of `_WHAT`. `image`: as the spec names it. `engine`: docker or podman. `said`:
    the words of the engine, the registry or the image. `lacking`: requirements that the image does
    not meet. `python`: the name of its interpreter."""

    kind: str
    image: str
    engine: str = "podman"
    said: str = ""
    lacking: tuple[str, ...] = ()
    python: str = "python3"

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"

    @property
    def what(self) -> str:
        """What is wrong; it may quote the host."""
        return self._filled_in(_WHAT)

    @property
    def remedy(self) -> str:
        """What to change, in words that are never the host's."""
        if self.kind == "start" and _NVIDIA.search(self.said):
            return _NVIDIA_REMEDY
        return self._filled_in(_REMEDY)

    def _filled_in(self, texts: dict[str, str]) -> str:
        return texts[self.kind].format(
            image=self.image,
            full=full_name(self.image),
            engine=self.engine,
            said=self.said,
            python=self.python,
            lacking=", ".join(self.lacking),
            quoted=" ".join(_quoted(line) for line in self.lacking),
        )

    def to_dict(self) -> dict[str, Any]:
        """What a host answers of it."""
        return {
            "kind": self.kind,
            "engine": self.engine,
            "said": self.said,
            "lacking": list(self.lacking),
            "python": self.python,
        }

    @classmethod
    def of(cls, fields: Fields, image: str, lines: Sequence[str]) -> ImageProblem:
        """A host's answer about `image`, of which `lines` were required.

        Raises:
            LookupError, ValueError: it is none.
        """
        kind, lacking = fields.text("kind"), fields.texts("lacking")
        if kind not in _WHAT:
            raise LookupError(kind)
        return cls(
            kind,
            image,
            engine="docker" if fields.text("engine") == "docker" else "podman",
            said=fields.text("said"),
            lacking=tuple(line for line in lines if line in lacking),
            python="python" if fields.text("python") == "python" else "python3",
        )


@dataclass(frozen=True, slots=True)
class ImageAnswer:
    """What a host says of an image before a launch. `digest`: by which it has it, None where it
    does not. `untried`: why it could not be tried, or its registry be asked."""

    problem: ImageProblem | None = None
    digest: str | None = None
    untried: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The answer's JSON."""
        problem = None if self.problem is None else self.problem.to_dict()
        return {"problem": problem, "digest": self.digest, "untried": self.untried}

    @classmethod
    def of(cls, fields: Fields, image: str, lines: Sequence[str]) -> ImageAnswer:
        """A host's answer; see `ImageProblem.of`."""
        problem = fields.find_section("problem")
        return cls(
            None if problem is None else ImageProblem.of(problem, image, lines),
            fields.find_text("digest"),
            fields.find_text("untried"),
        )


def full_name(name: str) -> str:
    """The name with its registry, as Docker completes it: Podman would ask which one is meant."""
    domain, slash, rest = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    is_domain = "." in domain or ":" in domain or domain == "localhost"
    return name if is_domain and rest else f"docker.io/{name}"


def _quoted(line: str) -> str:
    return f"'{line}'" if set(line) & set("<>=, ") else line

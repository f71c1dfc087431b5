"""Which of a run's checkpoints are copied to this machine, and which are missing, by the records
and the mirror's folder. Only reads; `checkpoint_mirror` downloads them.

A copy has the name that the checkpoint has on its host. It is renamed into place once complete.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.manifest import ManifestError, read
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

# The value of `checkpoint.mirror` for this machine.
OPERATOR = "operator"
SKIPPED = ".skipped.json"


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """A checkpoint; a later attempt may have saved the same step again."""

    step: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.step}/{self.attempt}"

    def __lt__(self, other: CheckpointKey) -> bool:
        return (self.step, self.attempt) < (other.step, other.attempt)

    @property
    def name(self) -> str:
        return f"step-{self.step:08d}"


def is_mirrored_here(run: Run) -> bool:
    """Whether the run's checkpoints are to come to this machine."""
    return run.checkpoint.mirror == OPERATOR


def mirrored_step(workspace: Workspace, view: RunView) -> int | None:
    """The newest complete checkpoint in the mirror; None where there is none."""
    if not is_mirrored_here(view.run):
        return view.record.mirrored_step
    here = copied(mirror_folder(workspace, view))
    standing = [key.step for key in verified_keys(view) if key in here]
    return max(standing or [key.step for key in here], default=None)


def wanted_here(workspace: Workspace, view: RunView) -> list[int]:
    """The steps that would be lost with the host: its newest verified checkpoint, its best one and
    superseded ones that are kept, where they are not here."""
    kept = {view.index.resume_from, view.index.best, *view.index.kept_superseded}
    return [key.step for key in missing(mirror_folder(workspace, view), view) if key.step in kept]


def missing(folder: Path, view: RunView) -> list[CheckpointKey]:
    """The verified checkpoints that are not in the mirror's `folder`, newest first, superseded ones
    last."""
    here, skipped = copied(folder), skipped_copies(folder)
    keys = [key for key in standing_keys(view) if key not in here and str(key) not in skipped]
    current = set(verified_keys(view))
    return sorted(keys, key=lambda key: (key in current, key), reverse=True)


def mirror_folder(workspace: Workspace, view: RunView) -> Path:
    return workspace.mirror.of(view.run.run_id, view.run.placement).path("checkpoints")


def verified_keys(view: RunView) -> list[CheckpointKey]:
    return [
        CheckpointKey(entry.step, entry.attempt) for entry in view.index.entries if entry.verified
    ]


def standing_keys(view: RunView) -> set[CheckpointKey]:
    """The verified checkpoints whose copies stay: superseded ones too, while they
    are on their host."""
    return {
        CheckpointKey(entry.step, entry.attempt) for entry in view.index.standing if entry.verified
    }


def copied(folder: Path) -> dict[CheckpointKey, Path]:
    """The complete copies in the mirror."""
    copies = {}
    for path in folder.glob("step-*") if folder.is_dir() else ():
        with suppress(ManifestError):
            manifest = read(path)
            key = CheckpointKey(manifest.step, manifest.attempt)
            if path.name == key.name:
                copies[key] = path
    return copies


def skipped_copies(folder: Path) -> dict[str, str]:
    """Checkpoints that can't be copied, and why."""
    try:
        skipped: dict[str, str] = json.loads((folder / SKIPPED).read_bytes())
        return skipped
    except (OSError, ValueError):
        return {}

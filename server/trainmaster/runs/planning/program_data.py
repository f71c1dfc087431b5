"""What a program reads beside its own files: sources of the spec that travel as they are."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.files.corpus import ON_BOX
from trainmaster.backends import HERE
from trainmaster.errors.errors import PlanError
from trainmaster.home.paths import Home
from trainmaster.plan.facts import ProgramData
from trainmaster.plan.fields.data import SourceSpec
from trainmaster.plan.spec import TrainingSpec
from trainmaster.transfers.file_set import FileSet, file_set
from trainmaster.transfers.upload_folder import digest_of, plain_name

_MOST_FILES = 20_000


def read_data(spec: TrainingSpec, home: Home) -> tuple[ProgramData, ...]:
    """The sources with the files that travel: none where they are on the host already. `home`:
    whose keys stay.

    Raises:
        PlanError: `DATA_MISSING`, one is not there, has no files or too many of them.
    """
    return tuple(
        _read(source, f"data.sources[{index}].path", home, is_here=spec.host in HERE)
        for index, source in enumerate(spec.data.sources)
    )


def travelling(path: Path, home: Home) -> FileSet:
    """The files of a folder that may travel: of all but caches and secrets, or `path` alone.

    Raises:
        OSError: it is not there or can't be read.
    """
    if path.is_file():
        return file_set(path.parent, home, [path.name])
    if not path.is_dir():
        raise FileNotFoundError(2, "it does not exist")
    return file_set(path, home)


def _read(source: SourceSpec, field: str, home: Home, *, is_here: bool) -> ProgramData:
    name = source.name or "main"
    if source.path.startswith(ON_BOX) and not is_here:
        return ProgramData(name=name, path=source.path)
    path = Path(source.path.removeprefix(ON_BOX))
    try:
        files = travelling(path, home).to_send()
    except OSError as error:
        raise _missing(field, source.path, error.strerror or "it can't be read") from error
    if not 0 < len(files) <= _MOST_FILES:
        what = (
            f"{len(files):,} files are more than {_MOST_FILES:,}" if files else "nothing may travel"
        )
        raise _missing(field, source.path, what)
    if is_here:
        return ProgramData(name=name, path=source.path)
    folder = path.parent if path.is_file() else path
    digest = digest_of(files)
    return ProgramData(
        name=name,
        path=str(folder),
        file=path.name if folder != path else None,
        sent_as=f"data-{plain_name(path.name, 'data')}-{digest[:12]}",
        files=tuple((file.name, file.size_bytes) for file in files),
        listing=digest,
    )


def _missing(field: str, path: str, problem: str) -> PlanError:
    return PlanError(
        "DATA_MISSING",
        f"`{field}` is {path!r}: {problem}.",
        "Give the path of a file, or of a folder with files, that can be read; leave what is "
        "larger on the host and name it as host:/path.",
        field=field,
    )

"""Words of a private dialect that may not come back: the field has better ones.

`python tests/docs/test_vocabulary.py [PATH...]` lists where they stand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("server", "trainer_runtime", "templates", "skills", "docs", "scripts", "tests")
_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md")
_ENDINGS = (".py", ".md", ".j2", ".sh")
# Recorded logs, what other programs print, and names in homes of earlier versions.
_FOREIGN = (
    "tests/failures/",
    "tests/golden/parse/",
    "tests/golden/series/",
    "tests/docs/test_vocabulary.py",
    "server/trainmaster/store/control/earlier_instances.py",
)

# In identifiers and in prose; a word of an identifier is what stands between underscores.
_WORDS = {
    r"told|tells?|telling|untold": "reported, recorded, described, printed",
    r"look(s|ed|ing)?": "read, inspect, check, evaluate, refresh",
    r"anew": "again",
    r"mend(s|ed|ing)?": "fix, repair",
    r"strangers?": "foreign process, another user, unknown",
    r"strays?": "orphans",
    r"stay(s|ed|ing)? at": "placement",
    r"operator'?s side": "client",
    r"box'?s side": "host",
    r"(?<!scale_)(?<!math\.)floors?": "layers",
    r"go(es)? on|went on|gone on|going on|goes_on|go_on|gone_on|going_on": "continue, resume",
    r"whoever|whosoever": "the reader, the caller, any process",
    r"kinship|shelf|sightings?|happenings": "parent_death, checkpoint_store, ledger, events",
    r"at most so many": "maximum",
}
_ANYWHERE = {
    pattern: re.compile(rf"(?<![A-Za-z])(?:{pattern})(?![A-Za-z])", re.IGNORECASE)
    for pattern in _WORDS
}
# In sentences only: `box` is also a value of the spec.
_IN_PROSE = {
    r"\bis no (?!longer|more|match)[a-z]": "is not a",
    r"\b(the|a|an|its|each|every|this|that|rented|whose|of|own) box(es)?\b(?!/|\.|`)": (
        "host, instance"
    ),
    r"\bbox's\b|\bboxes\b": "host's, instances",
}
_SENTENCES = {pattern: re.compile(pattern, re.IGNORECASE) for pattern in _IN_PROSE}
# Most files have none of them, which one search shows.
_ANY = re.compile(
    rf"(?<![A-Za-z])(?:{'|'.join(_WORDS)})(?![A-Za-z])|{'|'.join(_IN_PROSE)}", re.IGNORECASE
)


def files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            name = file.relative_to(_ROOT).as_posix()
            if file.suffix in _ENDINGS and not name.startswith(_FOREIGN) and ".venv" not in name:
                yield file


def hits(file: Path) -> Iterator[str]:
    """`path:line: word (say: …)` for each word of the dialect in a file."""
    name, text = file.relative_to(_ROOT).as_posix(), file.read_text()
    if _ANY.search(text) is None:
        return
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, expression in _ANYWHERE.items():
            for match in expression.finditer(line):
                yield f"{name}:{number}: {match[0]} (say: {_WORDS[pattern]})"
        for pattern, expression in _SENTENCES.items():
            for match in expression.finditer(line):
                yield f"{name}:{number}: {match[0]} (say: {_IN_PROSE[pattern]})"


@pytest.mark.slow
def test_the_fields_own_words_are_used() -> None:
    paths = [_ROOT / name for name in (*_FOLDERS, *_PAGES)]
    found = [hit for file in files(paths) for hit in hits(file)]
    assert not found, "\n".join(found[:50])


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    for each in files(chosen or [_ROOT / name for name in (*_FOLDERS, *_PAGES)]):
        for hit in hits(each):
            print(hit)

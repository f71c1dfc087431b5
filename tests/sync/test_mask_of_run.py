"""The mask of a run, where one question to the folder of secrets answers for many runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.home.paths import Home
from trainmaster.store.secret_values import forget, keep
from trainmaster.store.secrets_folder import SecretsFolder
from trainmaster.sync.mask_of_run import MaskOfRun

RUN, OTHER = "one-abcdef", "other-abcdef"
TOKEN = "t0k3n-of-this-run"
# Whatever changed has changed long ago.
LONG_AGO_S = -60.0
Stat = Callable[[str], os.stat_result]


class Masks:
    """The masks of two runs whose secrets lie in one folder, which is asked by `of_folder`, and
    whose files are asked by `of_file`."""

    def __init__(
        self,
        home: Home,
        *,
        settled_s: float = 3.0,
        of_folder: Stat = os.stat,
        of_file: Stat = os.stat,
    ) -> None:
        self._folder = SecretsFolder(home, settled_s=settled_s, stat=of_folder)
        self._masks = {
            run: MaskOfRun(home, run, self._folder, stat=of_file) for run in (RUN, OTHER)
        }

    def masked(self) -> set[str]:
        """The runs whose token is masked, by one question."""
        with self._folder.asked_once():
            return {run for run in self._masks if self._hides(run)}

    def _hides(self, run: str) -> bool:
        mask = self._masks[run]()
        return mask is not None and mask.apply(TOKEN.encode(), final=True) != TOKEN.encode()


def let_the_clock_tick(home: Home) -> None:
    """Until a file that is written now has another time than the folder of secrets."""
    probe, deadline = home.root / "probe", time.monotonic() + 10
    before = home.secrets(RUN).parent.stat().st_ctime_ns
    while True:
        probe.write_bytes(b"")
        if probe.stat().st_ctime_ns > before:
            return
        assert time.monotonic() < deadline


@pytest.fixture(params=[0, 5], ids=["its clock", "a clock behind"])
def coarse(request: pytest.FixtureRequest) -> Stat:
    """Files have times as of a file system that counts in tenths of a second, by another clock."""
    tick_ns, behind_ns = 10**8, request.param * 10**9

    def stat(path: str) -> os.stat_result:
        fields = os.stat(path)
        t_ns = fields.st_ctime_ns // tick_ns * tick_ns - behind_ns
        return os.stat_result(fields[:10], {"st_ctime_ns": t_ns, "st_mtime_ns": t_ns})

    return stat


def test_a_secret_that_comes_right_after_a_question_is_masked_after_the_next(
    tmp_path: Path, coarse: Stat
) -> None:
    home = Home(tmp_path)
    masks = Masks(home, of_folder=coarse)
    assert masks.masked() == set()
    keep(home, RUN, {"HF_TOKEN": TOKEN})
    assert masks.masked() == {RUN}
    keep(home, OTHER, {"HF_TOKEN": TOKEN})
    assert masks.masked() == {RUN, OTHER}


def test_a_secret_that_comes_long_after_the_folder_has_changed_is_masked(tmp_path: Path) -> None:
    home = Home(tmp_path)
    masks = Masks(home, settled_s=LONG_AGO_S)
    keep(home, RUN, {"HF_TOKEN": TOKEN})
    assert masks.masked() == masks.masked() == {RUN}
    let_the_clock_tick(home)
    keep(home, OTHER, {"HF_TOKEN": TOKEN})
    assert masks.masked() == {RUN, OTHER}


def test_what_was_masked_once_stays_masked_when_the_secret_is_removed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    masks = Masks(home, settled_s=LONG_AGO_S)
    keep(home, RUN, {"HF_TOKEN": TOKEN})
    assert masks.masked() == {RUN}
    forget(home, RUN)
    assert masks.masked() == masks.masked() == {RUN}
    let_the_clock_tick(home)
    keep(home, RUN, {"HF_TOKEN": "another one"})
    assert masks.masked() == set()


def test_a_file_that_was_missed_is_not_asked_for_again_in_a_folder_that_has_not_changed(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    keep(home, RUN, {"HF_TOKEN": TOKEN})
    asked: list[str] = []

    def ask(path: str) -> os.stat_result:
        asked.append(path)
        return os.stat(path)

    masks = Masks(home, settled_s=LONG_AGO_S, of_file=ask)
    masks.masked()
    asked.clear()
    assert masks.masked() == {RUN}
    assert asked == [str(home.secrets(RUN))]


def test_a_file_that_is_removed_while_it_is_read_leaves_the_known_mask(tmp_path: Path) -> None:
    home = Home(tmp_path)
    keep(home, RUN, {"HF_TOKEN": TOKEN})
    disappears = False

    def ask(path: str) -> os.stat_result:
        status = os.stat(path)
        if disappears:
            forget(home, RUN)
        return status

    masks = Masks(home, of_file=ask)
    assert masks.masked() == {RUN}
    keep(home, RUN, {"HF_TOKEN": "another one"})
    disappears = True
    assert masks.masked() == {RUN}
    assert not home.secrets(RUN).exists()


def test_nothing_is_written_where_the_folder_cannot_be_asked(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.secrets(RUN).parent.write_text("a file in its place")
    with pytest.raises(OSError, match="Not a directory"):
        Masks(home).masked()

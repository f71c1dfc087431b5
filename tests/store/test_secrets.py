"""Where secrets come from, and what is refused; how they are kept and delivered on a real run."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from trainmaster.errors.errors import HostError, SpecError, TrainmasterError
from trainmaster.home.paths import Home
from trainmaster.plan.spec import load_spec
from trainmaster.store.secret_values import find_values, forget, keep, kept, to_mask

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
RUN = "small-abcdef"


@pytest.fixture
def empty(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.settings.write_text("secrets: {allow: [HF_TOKEN, WANDB_API_KEY]}")
    return home


def refused(home: Home, names: list[str], environment: Mapping[str, str]) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as error:
        find_values(home, names, environment)
    for value in environment.values():
        assert value[:1] in ("", "/") or value not in str(error.value)
    return error.value


def write_secrets(home: Home, text: str, mode: int = 0o600) -> None:
    home.secrets_env.write_text(text)
    home.secrets_env.chmod(mode)


def test_the_environment_comes_first_then_the_homes_file_then_hugging_faces(empty: Home) -> None:
    token_file = empty.root / "hf" / "token"
    token_file.parent.mkdir()
    token_file.write_text(f"{TOKEN}-file\n")
    environment = {"HF_HOME": str(token_file.parent)}
    assert find_values(empty, ["HF_TOKEN"], environment) == {"HF_TOKEN": f"{TOKEN}-file"}
    write_secrets(empty, f"# mine\n\nexport HF_TOKEN='{TOKEN}-env'\nWANDB_API_KEY = key-4567\n")
    assert find_values(empty, ["WANDB_API_KEY", "HF_TOKEN"], environment) == {
        "WANDB_API_KEY": "key-4567",
        "HF_TOKEN": f"{TOKEN}-env",
    }
    environment["HF_TOKEN"] = TOKEN
    assert find_values(empty, ["HF_TOKEN"], environment) == {"HF_TOKEN": TOKEN}


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HF_TOKEN_PATH", ""),
        ("HF_HOME", "token"),
        ("XDG_CACHE_HOME", "huggingface/token"),
    ],
)
def test_hugging_faces_file_is_found_where_its_own_tools_keep_it(
    empty: Home, tmp_path: Path, variable: str, below: str
) -> None:
    place = tmp_path / "elsewhere"
    path = place / below if below else place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TOKEN)
    assert find_values(empty, ["HF_TOKEN"], {variable: str(place)}) == {"HF_TOKEN": TOKEN}


def test_a_secret_that_is_not_allowed_is_refused_with_the_line_to_write(empty: Home) -> None:
    error = refused(empty, ["HF_TOKEN", "OTHER_KEY"], {"OTHER_KEY": "abcd-1234"})
    assert error.code == "SECRET_NOT_ALLOWED"
    assert "secrets: {allow: [HF_TOKEN, WANDB_API_KEY, OTHER_KEY]}" in error.fix
    empty.settings.write_text("secrets: {allow: [HF_TOKEN, WANDB_API_KEY, OTHER_KEY]}")
    assert find_values(empty, ["OTHER_KEY"], {"OTHER_KEY": "abcd-1234"})


def test_a_secret_without_a_value_names_the_places_that_were_searched(empty: Home) -> None:
    error = refused(empty, ["HF_TOKEN"], {"HF_HOME": "/nowhere", "HF_TOKEN": ""})
    assert error.code == "SECRET_MISSING"
    for place in ("environment (HF_TOKEN)", str(empty.secrets_env), "/nowhere/token"):
        assert place in error.message


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_file_that_others_can_read_is_refused_with_the_command_that_fixes_it(
    empty: Home, mode: int
) -> None:
    write_secrets(empty, f"HF_TOKEN={TOKEN}\n", mode)
    error = refused(empty, ["HF_TOKEN"], {})
    assert (error.code, error.fix) == ("SECRET_INVALID", f"Run: chmod 600 {empty.secrets_env}")


def test_an_invalid_line_is_reported_by_number_without_its_text(
    empty: Home,
) -> None:
    write_secrets(empty, f"WANDB_API_KEY=abcd-1234\n{TOKEN}\n")
    error = refused(empty, ["HF_TOKEN"], {})
    assert error.code == "SECRET_INVALID" and "Line 2" in error.message
    assert TOKEN not in str(error)


@pytest.mark.parametrize("value", ["abc", "12345678", "-1.5", "password", "TRUE", "a\0bcdefgh1"])
def test_a_value_that_would_be_masked_everywhere_is_refused(empty: Home, value: str) -> None:
    assert refused(empty, ["HF_TOKEN"], {"HF_TOKEN": value}).code == "SECRET_INVALID"


def test_without_secrets_no_settings_are_needed(empty: Home) -> None:
    empty.settings.write_text("broken: [")
    assert find_values(empty, [], {}) == {}
    assert refused(empty, ["HF_TOKEN"], {"HF_TOKEN": TOKEN}).code == "SETTINGS_NOT_READABLE"


@pytest.mark.parametrize(
    "name",
    ["PATH", "LD_PRELOAD", "PYTHONPATH", "TRAINMASTER_HOME", "ld_library_path", "", "1A", "A B"],
)
def test_names_that_decide_what_runs_are_refused(name: str, small_spec: str) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(small_spec, [f'secrets=["{name}"]'])
    assert error.value.field == "secrets[0]"


@pytest.mark.parametrize("sets", [["secrets=[A_KEY, A_KEY]"], ["secrets=[A]", "env.A=x"]])
def test_a_name_that_stands_twice_is_refused(sets: list[str], small_spec: str) -> None:
    with pytest.raises(SpecError, match=r"twice|too"):
        load_spec(small_spec, sets)


def test_names_are_all_that_a_spec_holds_of_secrets(small_spec: str) -> None:
    spec = load_spec(
        small_spec, ["secrets=[HF_TOKEN, WANDB_API_KEY]", "checkpoint.mirror=operator"]
    )
    assert spec.secrets == ["HF_TOKEN", "WANDB_API_KEY"]


def test_what_a_run_is_given_is_its_owners_alone(empty: Home) -> None:
    keep(empty, RUN, {"HF_TOKEN": TOKEN})
    path = empty.secrets(RUN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert kept(empty, RUN, ["HF_TOKEN"]) == {"HF_TOKEN": TOKEN}
    with pytest.raises(HostError, match="OTHER"):
        kept(empty, RUN, ["HF_TOKEN", "OTHER"])
    forget(empty, RUN)
    forget(empty, RUN)
    assert not path.exists()


def test_a_value_that_was_replaced_is_still_masked(empty: Home) -> None:
    keep(empty, RUN, {"HF_TOKEN": TOKEN, "WANDB_API_KEY": "abcd-1234"})
    keep(empty, RUN, {"HF_TOKEN": "hf_new"})
    keep(empty, RUN, {})
    assert sorted(to_mask(empty, RUN)) == ["abcd-1234", TOKEN, "hf_new"]
    assert json.loads(empty.secrets(RUN).read_bytes())["values"] == {}


def test_nothing_is_kept_of_a_run_without_secrets(empty: Home) -> None:
    keep(empty, RUN, {})
    assert not empty.secrets(RUN).parent.exists()
    assert to_mask(empty, RUN) == []

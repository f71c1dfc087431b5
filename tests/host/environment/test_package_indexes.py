from __future__ import annotations

from pathlib import Path

from trainer_runtime.host.environment.installers import pip_settings, uv_options, uv_variables


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_uv_is_given_all_settings_of_pip(tmp_path: Path) -> None:
    written(
        tmp_path / "home" / ".config" / "pip" / "pip.conf",
        "[global]\nindex-url = https://user:secret@example.org/simple\n"
        "extra-index-url =\n    https://a.example.org/simple\n    https://b.example.org/simple\n"
        "find-links = /wheels\n    /more\ntrusted-host = a.example.org\ncert = /etc/ca.pem\n"
        "[install]\nno-index = false\n",
    )
    environment = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "none")}
    settings = pip_settings(environment, str(tmp_path / "prefix"))
    assert uv_variables(settings) == {
        "UV_DEFAULT_INDEX": "https://user:secret@example.org/simple",
        "UV_INDEX": "https://a.example.org/simple https://b.example.org/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "a.example.org",
        "SSL_CERT_FILE": "/etc/ca.pem",
    }
    assert uv_options(settings) == []


def test_variables_count_more_than_files_and_the_interpreters_file_more_than_the_users(
    tmp_path: Path,
) -> None:
    written(tmp_path / "home" / ".pip" / "pip.conf", "[global]\nindex-url = https://home/\n")
    written(tmp_path / "prefix" / "pip.conf", "[global]\nindex-url = https://prefix/\n")
    environment = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "none")}
    prefix = str(tmp_path / "prefix")
    assert pip_settings(environment, prefix)["index-url"] == "https://prefix/"
    environment |= {"PIP_INDEX_URL": "https://variable/", "PIP_NO_INDEX": "1"}
    settings = pip_settings(environment, prefix)
    assert settings["index-url"] == "https://variable/"
    assert uv_options(settings) == ["--no-index"]


def test_a_file_that_cannot_be_read_counts_for_nothing(tmp_path: Path) -> None:
    written(tmp_path / "prefix" / "pip.conf", "no section = here\n")
    environment = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}
    assert pip_settings(environment, str(tmp_path / "prefix")) == {"config-file": "/dev/null"}

"""`python3 container_command.py FOLDER IMAGE WORDS…`: prints the command, as a list in JSON, by
which this user's supervisor has root's Podman run WORDS in a container. FOLDER/run has the runtime
and a configuration.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.containers.container import Container, Image
from trainer_runtime.host.containers.engine import Engine


def main(folder: Path, image: str, *words: str) -> None:
    run = folder / "run"
    config = RunConfig.parse((run / "config.json").read_bytes())
    found = Image(Engine("podman", "podman", ""), image, image, "/usr/bin/python3")
    print(json.dumps(Container(found, run, config, Path("config.json"), {}).command(words, {})))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

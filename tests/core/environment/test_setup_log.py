from __future__ import annotations

import pytest

from trainer_runtime.core.environment.setup_log import STEPS, SetupStep, setup_step


@pytest.mark.parametrize(
    ("lines", "step"),
    [
        ([], None),
        (["whatever"], None),
        (["setup: running setup.sh", "setup: data: fake"], SetupStep("setup script")),
        (["modules: loading cuda"], SetupStep("modules")),
        (["environment: /usr/bin/python3 has no PyTorch; building one"], SetupStep("environment")),
        (["pip: Collecting torch"], SetupStep("packages")),
        (["uv: still at it after 15 s"], SetupStep("packages")),
        (["pip: Collecting torch", "prepare: the network failed"], SetupStep("packages")),
        (["environment: ready, /venv/bin/python (built)"], SetupStep("data")),
        (["adopt: taking over step 40 from /srv/out/ckpt.pt"], SetupStep("checkpoint")),
        (["environment: waiting for the wheels of /w: 3.0 MiB so far"], SetupStep("wheels")),
        (["data: main: 12.0 of 48.0 MiB (25%)"], SetupStep("data", 0.25)),
        (
            ["data: waiting for the upload of main: 1,024.0 of 2,048.0 MiB"],
            SetupStep("upload", 0.5),
        ),
        (["data: main: 0.0 of 0.0 MiB"], SetupStep("data")),
        (["data: waiting for another run that prepares the same data"], SetupStep("data")),
    ],
)
def test_the_newest_line_that_names_a_step_counts(lines: list[str], step: SetupStep | None) -> None:
    assert setup_step(lines) == step
    assert step is None or step.name in STEPS

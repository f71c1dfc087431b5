from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.host.fake_packages import make_wheel

from trainmaster.errors.errors import HostError, PlanError, SpecError
from trainmaster.plan import CorpusFacts, GpuFacts, HostFacts, Plan, TorchFacts, plan
from trainmaster.plan.decisions.environment import choose_requirements
from trainmaster.plan.facts import SlurmFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec, read_attached, refuse_other_files
from trainmaster.transfers.upload_wheels import with_place_of_wheels

SpecMaker = Callable[..., TrainingSpec]
HAS_HF = {"transformers": "5.3.0", "accelerate": "1.15.0", "datasets": "5.0.1"}
CPU_TORCH = TorchFacts(version="2.13.0+cpu")


def host_with_gpu(host: HostFacts, driver: str = "580.65.06", **changes: Any) -> HostFacts:
    gpu = GpuFacts(
        index=0, name="NVIDIA H200", memory_gib=139.8, memory_free_gib=139.0, driver=driver
    )
    given = {"gpus": (gpu,), "torch": None, "python_path": "/usr/bin/python3", **changes}
    return host.model_copy(update=given)


def decided(planned: Plan) -> dict[str, Any]:
    return {decision.field: decision.value for decision in planned.decisions}


def test_a_gpu_box_without_torch_is_planned_for_with_what_will_be_installed(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    planned = plan(make_spec(), host_with_gpu(cpu_host), text_corpus)
    assert planned.config["compute"]["device"] == "cuda"
    assert planned.config["precision"] == "bf16"
    assert planned.config["environment"]["bound"] == {}
    assert planned.requirements == ("torch==2.13.0",)
    assert decided(planned)["environment.torch"] == "torch==2.13.0"


def test_an_older_driver_bounds_the_torch(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    planned = plan(make_spec(), host_with_gpu(cpu_host, "535.129.03"), text_corpus)
    assert planned.config["environment"]["bound"] == {"torch": "<2.11"}
    assert planned.requirements == ("torch<2.11",)


@pytest.mark.parametrize("torch", [None, CPU_TORCH])
def test_a_driver_too_old_for_any_torch_leaves_the_cpu(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts, torch: TorchFacts | None
) -> None:
    host = host_with_gpu(cpu_host, "470.82", torch=torch)
    planned = plan(make_spec(), host, text_corpus)
    assert planned.config["compute"]["device"] == "cpu"
    assert any("470.82 is too old" in warning for warning in planned.warnings)


def test_a_torch_without_cuda_on_a_gpu_box_is_replaced(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    host = host_with_gpu(cpu_host, torch=CPU_TORCH)
    assert plan(make_spec(), host, text_corpus).config["compute"]["device"] == "cuda"
    on_cpu = plan(make_spec("compute.gpus=0"), host, text_corpus)
    assert on_cpu.config["environment"]["python"] == "/usr/bin/python3"


@pytest.mark.parametrize(("capability", "precision"), [(7.5, "fp16"), (8.9, "bf16")])
def test_an_unknown_gpu_is_judged_by_its_capability(
    make_spec: SpecMaker,
    cpu_host: HostFacts,
    text_corpus: CorpusFacts,
    capability: float,
    precision: str,
) -> None:
    gpu = GpuFacts(index=0, name="Nova 1", memory_gib=11, memory_free_gib=11, capability=capability)
    host = host_with_gpu(cpu_host, gpus=(gpu,))
    assert plan(make_spec(), host, text_corpus).config["precision"] == precision


def test_a_box_that_can_install_nothing_is_warned_of(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    host = cpu_host.model_copy(update={"torch": None, "venv_available": False})
    planned = plan(make_spec(), host, text_corpus)
    assert any("apt install python3-venv" in warning for warning in planned.warnings)
    with_uv = host.model_copy(update={"uv": "/usr/local/bin/uv"})
    warnings = plan(make_spec(), with_uv, text_corpus).warnings
    assert not any("python3-venv" in warning for warning in warnings)


def test_a_box_without_gpu_and_torch_is_warned_of_the_build_for_gpus(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    host = cpu_host.model_copy(update={"torch": None, "disk_free_gib": 5.0})
    planned = plan(make_spec(), host, text_corpus)
    assert any("PIP_EXTRA_INDEX_URL" in warning for warning in planned.warnings)
    assert planned.estimates.disk_gib > 8
    chosen = plan(make_spec('env={PIP_INDEX_URL: "https://example.org"}'), host, text_corpus)
    assert not any("PIP_EXTRA_INDEX_URL" in warning for warning in chosen.warnings)
    with pytest.raises(PlanError) as refused:
        plan(make_spec(), host.model_copy(update={"disk_free_gib": 1.5}), text_corpus)
    assert refused.value.code == "DISK_TOO_SMALL"


def test_what_the_spec_describes_stands_in_the_config_without_its_files(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    spec = make_spec(
        "host=gpu1",
        "environment={python: /opt/py/bin/python, requirements: r.txt, setup: s.sh, "
        "modules: [cuda/12.4], wheels: 'gpu1:/srv/wheels'}",
    )
    assert plan(spec, cpu_host, text_corpus).config["environment"] == {
        "mode": "given",
        "python": "/opt/py/bin/python",
        "requirements": True,
        "setup": True,
        "modules": ["cuda/12.4"],
        "wheels": "/srv/wheels",
        "wheels_from": None,
        "bound": {},
    }


def test_wheels_of_this_machine_have_a_place_in_the_hosts_cache(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    here = "environment={wheels: /home/me/wheels}"
    local = plan(make_spec(here), cpu_host, text_corpus)
    assert local.config["environment"]["wheels"] == "/home/me/wheels"
    host = cpu_host.model_copy(update={"wheels": "/cache/sources/0123"})
    remote = plan(make_spec(here, "host=gpu1"), host, text_corpus).config["environment"]
    assert remote["wheels"] == "/cache/sources/0123"
    assert remote["wheels_from"] == "/home/me/wheels"


def test_the_place_of_wheels_goes_by_what_they_are(
    make_spec: SpecMaker, cpu_host: HostFacts, tmp_path: Path
) -> None:
    spec = make_spec("host=gpu1", f"environment.wheels={tmp_path}")
    with pytest.raises(SpecError, match="no wheels"):
        with_place_of_wheels(spec, cpu_host)
    make_wheel(tmp_path, "one")
    first = with_place_of_wheels(spec, cpu_host).wheels
    assert first is not None
    assert first.startswith("/srv/trainmaster/cache/sources/")
    assert with_place_of_wheels(spec, cpu_host).wheels == first
    make_wheel(tmp_path, "two")
    assert with_place_of_wheels(spec, cpu_host).wheels != first
    local = make_spec(f"environment.wheels={tmp_path}")
    assert with_place_of_wheels(local, cpu_host) == cpu_host


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ("{wheels: 'other:/srv/wheels'}", "environment.wheels"),
        ("{python: venv/bin/python}", "environment.python"),
        ("{modules: [--help]}", "environment.modules[0]"),
        ("{modules: ['cuda; rm -rf /']}", "environment.modules[0]"),
    ],
)
def test_what_makes_no_sense_on_the_host_is_refused(
    make_spec: SpecMaker, environment: str, field: str
) -> None:
    with pytest.raises(SpecError) as refused:
        make_spec("host=gpu1", f"environment={environment}")
    assert (refused.value.code, refused.value.field) == ("INVALID_VALUE", field)


def test_an_interpreter_of_this_machine_may_be_given_relatively(make_spec: SpecMaker) -> None:
    relative = make_spec("environment={python: venv/bin/python}").environment
    assert getattr(relative, "python", None) == f"{Path.cwd()}/venv/bin/python"
    name = make_spec("environment={python: python3.12}").environment
    assert getattr(name, "python", None) == "python3.12"


def test_files_travel_as_text_under_names_of_their_own(
    make_spec: SpecMaker, tmp_path: Path
) -> None:
    (tmp_path / "r.txt").write_text("einops==0.8\n")
    (tmp_path / "s.sh").write_text("true\n")
    spec = make_spec(
        f"environment.requirements={tmp_path}/r.txt", f"environment.setup={tmp_path}/s.sh"
    )
    assert read_attached(spec) == {"requirements-extra.txt": "einops==0.8\n", "setup.sh": "true\n"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("-r others.txt\n", "INVALID_VALUE"),
        ("einops\n  -e .\n", "INVALID_VALUE"),
        ("./mine\n", "INVALID_VALUE"),
        ("--index-url https://me:secret@example.org/simple\n", "SECRET_IN_SPEC"),
        ("\0\ud800", "INVALID_VALUE"),
        ("x" * (300 << 10), "INVALID_VALUE"),
    ],
)
def test_requirements_that_cannot_travel_are_refused(
    make_spec: SpecMaker, tmp_path: Path, text: str, code: str
) -> None:
    path = tmp_path / "r.txt"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(SpecError) as refused:
        read_attached(make_spec(f"environment.requirements={path}"))
    assert (refused.value.code, refused.value.field) == (code, "environment.requirements")
    assert "secret@" not in str(refused.value)


def test_what_pip_fills_in_on_the_box_may_travel(make_spec: SpecMaker, tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("-i https://me:${TOKEN}@example.org/simple\neinops\n")
    assert read_attached(make_spec(f"environment.requirements={tmp_path}/r.txt"))


def test_a_missing_file_is_reported(make_spec: SpecMaker) -> None:
    with pytest.raises(SpecError) as refused:
        read_attached(make_spec("environment.setup=/nowhere/setup.sh"))
    assert (refused.value.code, refused.value.field) == ("INVALID_VALUE", "environment.setup")


def test_a_resume_brings_no_other_files(make_spec: SpecMaker) -> None:
    before = make_spec("environment.requirements=/a/r.txt")
    refuse_other_files(before, make_spec("environment.requirements=/a/r.txt"))
    refuse_other_files(before, make_spec("environment=existing"))
    with pytest.raises(SpecError):
        refuse_other_files(before, make_spec("environment.requirements=/a/other.txt"))


@pytest.fixture
def framework_spec(make_spec: SpecMaker) -> SpecMaker:
    """The small spec for HF's trainer."""

    def make(*sets: str) -> TrainingSpec:
        return make_spec("framework=hf", *sets)

    return make


def chosen(spec: TrainingSpec, host: HostFacts) -> tuple[tuple[str, ...], Ledger]:
    ledger = Ledger()
    return choose_requirements(spec, host, {"bound": {}}, "single", ledger), ledger


def with_packages(host: HostFacts, packages: dict[str, str] | None) -> HostFacts:
    return host.model_copy(update={"packages": packages, "python_path": "/opt/py"})


def test_an_environment_that_is_built_gets_pins(
    framework_spec: SpecMaker, cpu_host: HostFacts
) -> None:
    lines, ledger = chosen(framework_spec(), with_packages(cpu_host, {}))
    assert lines[:2] == ("torch==2.13.0", "transformers==5.3.0")
    (decision,) = ledger.decisions
    assert decision.field == "environment.packages"
    assert "built in the host's cache" in decision.reason
    _, ledger = chosen(framework_spec(), with_packages(cpu_host, HAS_HF))
    assert ledger.decisions[0].reason == "/opt/py has them."


@pytest.mark.parametrize("environment", ["existing", "{python: /opt/py}"])
def test_an_interpreter_that_lacks_the_framework_is_refused_with_both_remedies(
    framework_spec: SpecMaker, cpu_host: HostFacts, environment: str
) -> None:
    spec = framework_spec(f"environment={environment}")
    host = with_packages(cpu_host, {**HAS_HF, "transformers": "4.40.0", "accelerate": "0.1"})
    with pytest.raises(HostError) as refused:
        chosen(spec, host)
    assert (refused.value.code, refused.value.field) == ("ENVIRONMENT_MISMATCH", "environment")
    assert "transformers 4.40.0 where >=4.56.2,<6 is wanted" in refused.value.message
    assert "accelerate 0.1" in refused.value.message
    assert "datasets" not in refused.value.message
    assert "/opt/py -m pip install transformers==5.3.0" in refused.value.fix
    assert "environment: auto" in refused.value.fix
    with pytest.raises(HostError, match=r"transformers \(missing\)"):
        chosen(spec, with_packages(cpu_host, {}))


def test_other_versions_within_bounds_are_warned_of(
    framework_spec: SpecMaker, cpu_host: HostFacts
) -> None:
    spec = framework_spec("environment=existing")
    lines, ledger = chosen(spec, with_packages(cpu_host, {**HAS_HF, "transformers": "4.57.1"}))
    assert "transformers>=4.56.2,<6" in lines
    (warning,) = ledger.warnings
    assert "transformers 4.57.1 where 5.3.0 is wanted" in warning
    _, ledger = chosen(spec, with_packages(cpu_host, HAS_HF))
    assert ledger.warnings == []


def test_facts_of_an_older_probe_refuse_nothing(
    framework_spec: SpecMaker, cpu_host: HostFacts
) -> None:
    assert chosen(framework_spec("environment=existing"), with_packages(cpu_host, None))
    assert "packages" not in cpu_host.model_dump(exclude_none=True)


def test_a_setup_script_may_bring_what_is_missing(
    framework_spec: SpecMaker, cpu_host: HostFacts
) -> None:
    spec = framework_spec("environment={python: /opt/py, setup: s.sh}")
    lines, _ = chosen(spec, with_packages(cpu_host, {}))
    assert "transformers>=4.56.2,<6" in lines  # the host checks after the script has run


CONTAINED = "compute={launcher: docker, image: 'pytorch/pytorch:2.9.1', shm_size: 2g}"


def test_a_container_trains_by_its_image_whatever_the_host_has(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    host = cpu_host.model_copy(update={"torch": None, "engines": ("podman",)})
    planned = plan(make_spec(CONTAINED), host, text_corpus)
    assert decided(planned)["environment.python"] == "python3 of pytorch/pytorch:2.9.1"
    assert "environment.torch" not in decided(planned)
    assert planned.requirements == ("torch>=2.3",)
    compute = planned.config["compute"]
    found = (compute["launcher"], compute["image"], compute["shm_size"])
    assert found == ("docker", "pytorch/pytorch:2.9.1", "2g")
    plain = plan(make_spec(), cpu_host, text_corpus)
    assert planned.estimates.disk_gib == plain.estimates.disk_gib


def test_a_gpu_is_planned_for_whose_pytorch_is_in_the_image(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    host = host_with_gpu(cpu_host, torch=CPU_TORCH, c_compiler=True)
    planned = plan(make_spec(CONTAINED), host, text_corpus)
    assert planned.config["compute"]["device"] == "cuda"
    assert planned.config["compute"]["compile"] is False
    assert not any("PyTorch" in warning for warning in planned.warnings)


def test_a_container_on_a_host_without_an_engine_is_refused(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    host = cpu_host.model_copy(update={"engines": ()})
    with pytest.raises(HostError, match="neither docker nor podman") as refused:
        plan(make_spec(CONTAINED), host, text_corpus)
    assert (refused.value.code, refused.value.field) == (
        "CONTAINER_ENGINE_MISSING",
        "compute.launcher",
    )
    assert "apt install podman" in refused.value.fix


def test_a_container_in_the_job_of_a_cluster_is_refused(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    slurm = SlurmFacts(partition="cpu", cpus=8, memory_mib=16000)
    host = cpu_host.model_copy(update={"engines": ("podman",), "slurm": slurm})
    with pytest.raises(HostError, match="is a Slurm cluster") as refused:
        plan(make_spec(CONTAINED), host, text_corpus)
    assert (refused.value.code, refused.value.field) == ("UNSUPPORTED", "compute.launcher")
    assert "environment: auto" in refused.value.fix

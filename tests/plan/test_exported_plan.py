"""A plan as the file of another engine, read by that engine's own client or models."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.errors.errors import PlanError
from trainmaster.home.assets import find_assets
from trainmaster.plan import CorpusFacts, HostFacts, Plan, plan
from trainmaster.plan.export import ENGINES, engine_file, for_another_machine
from trainmaster.plan.facts import SlurmFacts
from trainmaster.plan.spec import TrainingSpec

SpecMaker = Callable[..., TrainingSpec]
_GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "export"
_IMAGE = "registry.example:5000/team/torch:2.9"
# To SkyPilot's own developers.
_NO_REPORTS = {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}


@pytest.fixture
def on_gpus(make_spec: SpecMaker, gpu_host: HostFacts, text_corpus: CorpusFacts) -> Plan:
    """For two H100 that no host here has."""
    two = ("framework=litgpt", "compute.gpu=h100", "compute.gpus=2")
    spec = make_spec(*two, "secrets=[HF_TOKEN]", "limits.max_runtime=26h")
    return plan(spec, gpu_host, text_corpus)


@pytest.fixture
def on_cpu(make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts) -> Plan:
    return plan(make_spec(), cpu_host, text_corpus)


def _text(planned: Plan, engine: str, name: str = "demo-gpt") -> str:
    image = _IMAGE if ENGINES[engine].takes_image else None
    return engine_file(planned, name, engine, image, find_assets()).text


@pytest.mark.parametrize("engine", ENGINES)
def test_the_files_for_engines_are_the_golden_ones(on_gpus: Plan, engine: str) -> None:
    golden = _GOLDEN / ENGINES[engine].file
    text = _text(on_gpus, engine)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_files_for_two_nodes_start_a_part_of_the_training_on_each(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    spec = make_spec("framework=hf", "compute={processes: 2, threads: 3, nodes: 2}")
    planned = plan(spec, cpu_host.model_copy(update={"alike": 2}), text_corpus)
    golden, text = _GOLDEN / "two-nodes.sbatch", _text(planned, "slurm")
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert "#SBATCH --cpus-per-task=6\n" in text  # of two ranks, with three threads each
    job = _jobset(planned, "demo-gpt")["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["completions"], job["completionMode"]) == (2, "Indexed")
    container = job["template"]["spec"]["containers"][0]
    assert container["command"][-1] == "NODE_RANK=$JOB_COMPLETION_INDEX exec sh train.sh"
    env = {one["name"]: one["value"] for one in container["env"]}
    assert env == {"MASTER_ADDR": "demo-gpt-trainer-0-0.demo-gpt", "MASTER_PORT": "29500"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_head_says_what_is_lost_and_how_it_is_submitted(on_gpus: Plan, engine: str) -> None:
    head = "".join(
        line for line in _text(on_gpus, engine).splitlines() if re.match(r"#(?!SBATCH)", line)
    )
    assert "does not supervise it there" in head
    start = ENGINES[engine].start.replace("launch", "launch --secret HF_TOKEN")
    assert start in head


def test_the_jobsets_head_has_the_command_that_makes_its_secret(
    on_gpus: Plan, tmp_path: Path
) -> None:
    text = _text(on_gpus, "kubernetes")
    named = re.findall(r"secretKeyRef:\n +name: (.*)\n", text)
    # kubectl takes the file that printf writes; this program shows what it is given.
    shown = tmp_path / "kubectl"
    shown.write_text('#!/bin/sh\necho "$@"\ncat "${5#*=}"\n')
    shown.chmod(0o755)
    command = "".join(line.removeprefix("#   ") for line in re.findall(r"#   .*\n", text))
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HF_TOKEN": "hf_$x %s"}
    ran = subprocess.run(
        ["sh", "-c", command], env=given, capture_output=True, text=True, check=False, timeout=60
    )
    words = f"create secret generic {named[0]} --from-env-file=/dev/stdin"
    assert (ran.stdout, ran.stderr) == (f"{words}\nHF_TOKEN=hf_$x %s\n", "")


@pytest.mark.parametrize("gpus", [1, 8])
def test_a_machine_that_is_not_here_has_threads_for_the_cores_it_is_asked_for(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts, gpus: int
) -> None:
    spec = make_spec("framework=hf", "compute.gpu=h100", f"compute.gpus={gpus}")
    planned = plan(spec, cpu_host, text_corpus)
    assert planned.config["compute"]["threads"] == 8
    assert not any("compete" in warning for warning in planned.warnings)
    assert f"--cpus-per-task={8 * gpus}\n" in _text(planned, "slurm")


def test_the_cores_of_a_host_here_are_not_asked_of_an_engine(
    make_spec: SpecMaker, gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    here = gpu_host.model_copy(update={"cores": 96.0})
    planned = plan(make_spec("compute.gpus=1"), here, text_corpus)
    assert planned.config["compute"]["threads"] == 96
    exported = for_another_machine(planned)
    assert exported.config["compute"]["threads"] == 8
    assert "--cpus-per-task=8\n" in _text(exported, "slurm")
    given = plan(make_spec("compute.gpus=1", "compute.threads=12"), here, text_corpus)
    assert for_another_machine(given) == given
    assert "--cpus-per-task=12\n" in _text(given, "slurm")


@pytest.mark.parametrize(("limit", "signal_s"), [("5m", 60), ("8m", 96), ("10m", 120)])
def test_slurm_signals_a_short_job_later(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts, limit: str, signal_s: int
) -> None:
    planned = plan(make_spec(f"limits.max_runtime={limit}"), cpu_host, text_corpus)
    assert f"--signal=B:TERM@{signal_s}\n" in _text(planned, "slurm")


def test_a_plan_for_a_cluster_asks_for_what_was_planned_there(
    make_spec: SpecMaker, gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    given = {"account": "physics", "qos": "long", "constraint": "fast&big", "limit_s": 86400.0}
    size = {"cpus": 64, "memory_mib": 512000, "gpus": 8, "modules": "cuda/12.4,python/3.11"}
    slurm = SlurmFacts.model_validate({"partition": "mine", **given, **size})
    host = gpu_host.model_copy(update={"slurm": slurm})
    for limit, time in (("auto", "0-01:00:00"), ("20m", "0-00:20:00")):
        planned = plan(
            make_spec("compute.gpus=1", f"limits.max_runtime={limit}"), host, text_corpus
        )
        job = planned.config["slurm"]
        text = engine_file(planned, "demo", "slurm", None, find_assets(), job=job).text
        found = re.findall(r"#SBATCH --(.*)=(.*)\n", text)
        asked = {"partition": "mine", "account": "physics", "qos": "long", "constraint": "fast&big"}
        asked |= {"gres": "gpu:1", "cpus-per-task": "8", "mem": "64000M", "time": time}
        assert asked.items() <= dict(found).items()
        assert len(dict(found)) == len(found)
        loaded = "module load cuda/12.4 || exit 67\nmodule load python/3.11 || exit 67\n"
        assert text.startswith("#!/bin/bash\n") and loaded in text
        assert "sbatch --gres=gpu:TYPE:1 job.sbatch" in text  # the cluster named no type
    typed = {**planned.config["slurm"], "gres": "lustre:1,gpu:a100:1"}
    text = engine_file(planned, "demo", "slurm", None, find_assets(), job=typed).text
    assert "gpu:TYPE" not in text
    with pytest.raises(PlanError, match="in partition mine, is 1"):
        short = {**typed, "limit_minutes": 1}
        engine_file(planned, "demo", "slurm", None, find_assets(), job=short)


def test_a_limit_in_which_no_job_can_save_is_refused(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    planned = plan(make_spec("limits.max_runtime=30s"), cpu_host, text_corpus)
    with pytest.raises(PlanError, match="no job of Slurm both trains and saves") as refused:
        _text(planned, "slurm")
    assert refused.value.field == "limits.max_runtime"
    assert "at least 5" in refused.value.fix


def _jobset(planned: Plan, name: str) -> dict[str, Any]:
    # Here, since each of the tests' workers imports this file: 0.8 s.
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

    document: dict[str, Any] = yaml.safe_load(_text(planned, "kubernetes", name))
    assert JobsetV1alpha2JobSet.from_dict(document).to_dict() == document  # no field is unknown
    return document


@pytest.mark.parametrize("name", ["demo-gpt", "1My.Run_", "a" * 63])
def test_kubernetes_models_take_the_jobset_under_any_name(on_gpus: Plan, name: str) -> None:
    metadata = _jobset(on_gpus, name)["metadata"]
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", metadata["name"])
    assert re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", metadata["labels"]["trainmaster/run"])


def test_unusable_input_and_a_deadline_are_not_started_again_by_kubernetes(on_gpus: Plan) -> None:
    document = _jobset(on_gpus, "demo-gpt")
    job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [77]
    rule = document["spec"]["failurePolicy"]["rules"][0]
    assert rule["action"] == "FailJobSet"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy", "DeadlineExceeded"]
    # As JobSet has it of a rule's name.
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])
    head = _text(on_gpus, "kubernetes")
    limit = spoken_duration(float(job["activeDeadlineSeconds"]))
    assert (
        f"# {limit} after its start, waiting for nodes included, it saves and ends for good" in head
    )
    for needed in ("kubectl get crd jobsets.jobset.x-k8s.io", "kubectl delete -f jobset.yaml"):
        assert needed in head


def test_the_heads_say_what_gpus_need_what_spot_prices_take_and_what_is_restarted(
    on_gpus: Plan, on_cpu: Plan
) -> None:
    assert "NVIDIA Container Toolkit" in _text(on_gpus, "docker-compose")
    assert "NVIDIA Container Toolkit" not in _text(on_cpu, "docker-compose")
    spot = "sky jobs launch --use-spot --secret HF_TOKEN task.yaml"
    assert spot in _text(on_gpus, "skypilot")
    for engine in ("docker-compose", "skypilot"):
        restarted = "up to 3 more times, also where its input is unusable\n# (exit code 77)"
        assert restarted in _text(on_gpus, engine)


@pytest.mark.engine
@pytest.mark.parametrize("planned", ["on_gpus", "on_cpu"])
def test_composes_own_client_takes_the_file(
    planned: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = _text(request.getfixturevalue(planned), "docker-compose")
    (tmp_path / "compose.yaml").write_text(text)
    ended = subprocess.run(
        ["docker-compose", "--file", "compose.yaml", "config"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HF_TOKEN": "from-the-environment"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    service = yaml.safe_load(ended.stdout)["services"]["trainer"]
    assert service["image"] == _IMAGE
    assert service["volumes"] == [f"{tmp_path}:/run-folder:rw"]
    if planned == "on_gpus":
        assert service["environment"] == {"HF_TOKEN": "from-the-environment"}


@pytest.mark.engine
def test_skypilots_own_client_takes_the_task(on_gpus: Plan, tmp_path: Path) -> None:
    python = os.environ.get("TRAINMASTER_SKYPILOT") or f"{sys.prefix}/skypilot/bin/python"
    if not Path(python).exists():
        pytest.fail(f"{python} is missing: run `make setup`, or scripts/setup_skypilot.sh")
    (tmp_path / "task.yaml").write_text(_text(on_gpus, "skypilot"))
    code = "import sky; task = sky.Task.from_yaml('task.yaml'); print(task.name, task.resources)"
    ended = subprocess.run(
        [python, "-c", code],
        cwd=tmp_path,
        env={**_NO_REPORTS, "PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_TOKEN": "x"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "demo-gpt" in ended.stdout
    assert "'H100': 2" in ended.stdout


def test_the_batch_script_trains_in_its_folder_and_passes_the_signal_on(
    on_cpu: Plan, tmp_path: Path
) -> None:
    (tmp_path / "job.sbatch").write_text(_text(on_cpu, "slurm"))
    (tmp_path / "train.sh").write_text((find_assets().templates / "launch/train.sh").read_text())
    package = tmp_path / "trainer_runtime"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import os, sys\nprint(sys.argv[1:], os.getpid())\n")
    ran = subprocess.Popen(
        ["sh", "job.sbatch"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = ran.communicate(timeout=60)[0].splitlines()
    # The trainer is the batch shell's own process, to which alone Slurm sends SIGTERM.
    assert lines[-1] == f"['train', '--this-python', 'config.json'] {ran.pid}"


def test_a_time_limit_covers_the_longest_estimate(
    make_spec: SpecMaker, gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    spec = make_spec("compute.gpu=h100", "steps=null", "tokens=20e9")
    planned = plan(spec, gpu_host, text_corpus)
    longest = planned.estimates.ranges["hours"][1]
    found = re.search(r"--time=(\d+)-(\d\d):00:00", _text(planned, "slurm"))
    assert found is not None
    assert longest <= int(found[1]) * 24 + int(found[2]) <= 2 * longest + 1
    limited = make_spec("compute.gpu=h100", "limits.max_runtime=20m")
    assert "--time=0-00:20:00\n" in _text(plan(limited, gpu_host, text_corpus), "slurm")

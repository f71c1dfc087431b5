"""Addresses and paths of other machines that an agent's policy judges by their text alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_runtime.core.inputs.object_store import StoreAddress
from trainmaster.errors.errors import PolicyError
from trainmaster.home.paths import Home
from trainmaster.settings.policy import Policy, policy_of_agent
from trainmaster.settings.protected_places import protected_on_host


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example\\@wandb.ai",
        "https://user:word@wandb.ai",
        *("https://wandb.ai\t", "https://wandb.ai\n", " https://wandb.ai", "see https://wandb.ai"),
        *("https://evil.example\u3002hf.co", "https://evil.example%2f.hf.co"),
        *("https:///wandb.ai", "https:/wandb.ai", "http:wandb.ai", "//wandb.ai", "///wandb.ai"),
    ],
)
def test_an_address_that_programs_read_differently_is_refused(url: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(bound=True).check_endpoint(url, "env.X")
    assert caught.value.code == "POLICY_ENDPOINT" and caught.value.question is None
    Policy().check_endpoint(url)


@pytest.mark.parametrize(
    "url",
    [
        *("https://wandb.ai", "api.wandb.ai:443", "https://hf.co/a?b=c@d#e", "", "file:///x"),
        "https://HUGGINGFACE.co./x",
    ],
)
def test_a_plain_address_of_a_public_service_passes(url: str) -> None:
    Policy(bound=True).check_endpoint(url)


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/shadow", "//etc/shadow", "///etc/shadow", "//proc/self/environ", "/x/../proc/1"),
        *("/run/secrets/x", "/var/run/secrets/kubernetes.io/serviceaccount/token", "/var/run/user"),
        *("/home/u/.trainmaster/keys/k", "/home/u/.local/share/trainmaster/settings.yaml"),
        *("../../etc/passwd", "data/../../etc", ".."),
        *("/data/secrets.env", "/data/control.db", "~/.ssh/id_rsa", "//root/.ssh/id_rsa"),
    ],
)
def test_protected_paths_of_a_host_are_known_by_name(path: str) -> None:
    assert protected_on_host(path)


def test_runs_and_data_of_a_host_are_not_protected() -> None:
    for path in (
        "/home/u/.trainmaster/runs/r-1/train.log",
        "/data/keys/a.txt",
        "/srv/etc/x",
        "a/../b",
        "..a/b",
    ):
        assert not protected_on_host(path)


def test_an_agent_uses_only_the_buckets_of_the_settings(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.settings.write_text('agent: {endpoints: ["s3://ours"]}\n')
    policy = policy_of_agent(home, {"HOME": str(tmp_path)}, tmp_path)
    policy.check_bucket(StoreAddress("s3", "ours", "data"), "data.sources[0].path")
    # Anybody may own a bucket that is named as a public service is.
    for bucket in ("hf.co", "our", "ours.example"):
        with pytest.raises(PolicyError) as caught:
            policy.check_bucket(StoreAddress("s3", bucket), "checkpoint.mirror")
        assert (caught.value.code, caught.value.field) == ("POLICY_ENDPOINT", "checkpoint.mirror")
    with pytest.raises(PolicyError):
        policy.check_bucket(StoreAddress("gs", "ours"), "data.sources[0].path")
    with pytest.raises(PolicyError):
        policy.check_endpoint("https://ours", "env.AWS_ENDPOINT_URL")

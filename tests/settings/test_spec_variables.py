"""Variables of a spec that lead to no code, and those whose values are addresses."""

from __future__ import annotations

import pytest

from trainmaster.settings.spec_variables import is_free_text, is_harmless, names_server


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("OMP_NUM_THREADS", "4"), ("CUDA_VISIBLE_DEVICES", "0,1"), ("HF_HUB_OFFLINE", "1")),
        *(("HF_HUB_DISABLE_XET", "1"), ("TRAINMASTER_STEP_S", "0.1"), ("TZ", "Europe/Berlin")),
        *(("NCCL_DEBUG", "INFO"), ("NCCL_IB_DISABLE", "1"), ("NCCL_SOCKET_IFNAME", "^lo,docker0")),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        *(("WANDB_NOTES", "as in https://arxiv.org/abs/1"), ("WANDB_HOST", "node1")),
        *(("WANDB_NAME", "lr/3e-4"), ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"), ("LC_ALL", "C.UTF-8")),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        *(("HF_ENDPOINT", "https://huggingface.co"), ("https_proxy", "127.0.0.1:3128")),
        ("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000"),
    ],
)
def test_settings_of_the_training_are_harmless(name: str, value: str) -> None:
    assert is_harmless(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "1") for name in ("ANYTHING", "PATH", "PYTHONPATH", "LD_PRELOAD", "BASH_ENV")),
        *(
            (name, "1")
            for name in ("PYTHONWARNINGS", "BROWSER", "OPENSSL_CONF", "CC", "MPLBACKEND")
        ),
        *((name, "1") for name in ("CUDA_INJECTION64_PATH", "TRITON_CACHE_DIR", "HF_HOME")),
        *((name, "1") for name in ("PIP_CONFIG_FILE", "UV_CONFIG_FILE", "GIT_SSH_COMMAND")),
        *(
            (name, "1")
            for name in ("CONDA_PREFIX", "HF_TOKEN_PATH", "TRAINMASTER_HOME", "TORCH_LOGS")
        ),
        *((name, "1") for name in ("OMP_TOOL_LIBRARIES", "omp_num_threads", "OMP_NUM_THREADS_X")),
        *((name, "1") for name in ("NCCL_NET_PLUGIN", "NCCL_CONF_FILE", "NCCL_DEBUG_FILE")),
        *(("NCCL_IB_HCA", "mlx5"), ("TZ", ":/etc/shadow"), ("LANG", "../x"), ("LC_ALL", "/x")),
        *(("MLFLOW_TRACKING_URI", "sqlite:////x"), ("MLFLOW_TRACKING_URI", "/data/x")),
        ("PIP_INDEX_URL", "https://huggingface.co/x"),
    ],
)
def test_everything_else_may_lead_to_code(name: str, value: str) -> None:
    assert not is_harmless(name, value)


def test_addresses_are_known_by_the_variables_ends() -> None:
    for name in ("WANDB_HTTPS_PROXY", "all_proxy", "HF_ENDPOINT", "CLEARML_API_HOST", "X_Uri"):
        assert names_server(name)
    for name in ("NO_PROXY", "no_proxy", "WANDB_NAME", "TZ"):
        assert not names_server(name)


@pytest.mark.parametrize("name", ["WANDB_NOTES", "WANDB_HOST", "WANDB_NAME"])
def test_a_description_names_no_server(name: str) -> None:
    assert is_free_text(name) and not names_server(name)
    assert not is_free_text("WANDB_BASE_URL")

"""Which environment variables of a spec change nothing but settings of the training, and which name
a server.

The first is a closed list: hardly a program documents every variable that makes it load a library,
start a program or write a file.
"""

from __future__ import annotations

import re

_HARMLESS = re.compile(
    r"(OMP|MKL|OPENBLAS|NUMEXPR|RAYON)_NUM_THREADS|NUMEXPR_MAX_THREADS|VECLIB_MAXIMUM_THREADS"
    r"|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING)"
    r"|CUBLAS_WORKSPACE_CONFIG|NVIDIA_TF32_OVERRIDE|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF"
    r"|NCCL_(DEBUG|DEBUG_SUBSYS|SOCKET_IFNAME)|GLOO_SOCKET_IFNAME"
    r"|TOKENIZERS_PARALLELISM|(HF_HUB|HF_DATASETS|TRANSFORMERS)_OFFLINE"
    r"|HF_HUB_(DISABLE_[A-Z_]+|VERBOSITY|(DOWNLOAD|ETAG)_TIMEOUT)|TRANSFORMERS_VERBOSITY"
    r"|WANDB_(PROJECT|ENTITY|NAME|MODE|TAGS|RUN_GROUP|NOTES|JOB_TYPE|HOST)|MLFLOW_EXPERIMENT_NAME"
    r"|AWS_(DEFAULT_)?REGION|AZURE_STORAGE_ACCOUNT_NAME"
    r"|LANG|LC_[A-Z]+|TZ|PYTHONUNBUFFERED|PYTHONHASHSEED"
    r"|TRAINMASTER_(STEP_S|FAULTS)"
)
# Of NCCL's many options those that are numbers and name no library and no file.
_NUMBERED = re.compile(r"(TORCH_)?NCCL_(?!.*(PLUGIN|FILE|CONF|TOPO|GRAPH))[A-Z0-9_]+")
_NUMBER = re.compile(r"[0-9]{1,12}")
_PLACE = re.compile(r":?[/~].*|.*\.\..*", re.DOTALL)
# What these name is asked, and never run or written to, if it is an address.
_SERVERS = re.compile(
    r"HF_ENDPOINT|AWS_ENDPOINT_URL(_S3)?|STORAGE_EMULATOR_HOST"
    r"|WANDB_BASE_URL|MLFLOW_TRACKING_URI|COMET_URL_OVERRIDE|CLEARML_API_HOST"
    r"|(?i:(WANDB_)?(HTTPS?|ALL|FTP)_PROXY)"
)
_NAMES_SERVER = re.compile(r"(?i).+_(PROXY|URL|ENDPOINT|URI|HOST)|COMET_URL_OVERRIDE")
# Shown beside a run; `WANDB_HOST` is the name of the machine there.
_FREE_TEXT = re.compile(r"WANDB_(NAME|TAGS|RUN_GROUP|NOTES|JOB_TYPE|HOST)")
_ASKED = re.compile(r"(?i)(https?|socks[45][ah]?)://.*|(?!.*://)[a-z0-9\[].*")


def is_harmless(name: str, value: str) -> bool:
    """Whether neither a variable nor its value decides what is run, read or written; that of a
    server counts as such: its address is checked by itself."""
    if _HARMLESS.fullmatch(name):
        return _PLACE.fullmatch(value) is None
    if _NUMBERED.fullmatch(name):
        return _NUMBER.fullmatch(value) is not None
    return _SERVERS.fullmatch(name) is not None and _ASKED.fullmatch(value) is not None


def names_server(name: str) -> bool:
    """Whether a variable's value is an address, even without a scheme."""
    is_server = _NAMES_SERVER.fullmatch(name) is not None and name.upper() != "NO_PROXY"
    return is_server and not is_free_text(name)


def is_free_text(name: str) -> bool:
    """Whether a variable's value is a description: an address in it is not asked."""
    return _FREE_TEXT.fullmatch(name) is not None

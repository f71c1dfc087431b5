"""Services beside a training: the hub, trackers, servers of models, Ray."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

_HUB = r"(?:huggingface\.co|hf\.co)"
KINDS = (
    Kind(
        "hub_rate_limit",
        "The hub refuses further requests for a while (429): too many were made.",
        (
            "Wait some minutes and start again; with a token (HF_TOKEN) more requests are allowed.",
            "Download once and set HF_HUB_OFFLINE=1 for all ranks.",
        ),
        (
            Wording(
                rf"\b429 (?:Client Error|Too Many Requests).{{0,200}}{_HUB}"
                r"|\bWe had to rate limit your IP|\bToo Many Requests: you have reached your"
                r"|\bMaxRetries?Exceeded\b.{0,120}\b429\b",
                "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for "
                "url: https://huggingface.co/api/models/abc/model",
                "huggingface_hub, utils/_http.py",
                unless=r"(?i)retrying",
            ),
        ),
        instead_of=("hf_network", "hf_gated_repo"),
    ),
    Kind(
        "hub_write_refused",
        "The token may not write to the hub: the training is done, its upload is not.",
        ("Use a token with the right to write, then push the saved folder; train nothing again.",),
        (
            Wording(
                r"\b403 (?:Client Error: )?Forbidden.{0,200}"
                r"/api/(?:repos/create|models/\S+/(?:commit|preupload|branch))"
                r"|\b(?:401|403) Client Error.{0,200}"
                r"/api/(?:repos/create|\w+/\S+/(?:commit|preupload))"
                r"|\bYou don't have the rights to create a (?:model|dataset)"
                r"|\bdon't have the rights to create a"
                r"|\bpass .create_pr=1. as a query parameter",
                "huggingface_hub.errors.HfHubHTTPError: 403 Client Error: Forbidden for url: "
                "https://huggingface.co/api/repos/create",
                "huggingface_hub, utils/_http.py",
            ),
        ),
        instead_of=("hf_gated_repo",),
    ),
    Kind(
        "tracker_unreachable",
        "The experiment tracker (W&B, MLflow, Comet, Neptune) can't be reached.",
        (
            "Log offline and upload later (`mode: offline` under the tracker's name), or let the "
            "host reach it.",
        ),
        (
            Wording(
                r"\bCommError: .{0,80}(?:timed out|returned error|Error communicating)"
                r"|\bRun initialization has timed out after"
                r"|\bwandb: (?:ERROR|WARNING) .{0,60}(?:Error while calling W&B API|Network error)"
                r"|\bMlflowException: API request to .{1,200} failed"
                r"|\bproblem communicating with W&B",
                "wandb.errors.CommError: Run initialization has timed out after 90.0 sec.",
                "wandb, sdk/wandb_init.py",
                unless=r"(?i)retry",
            ),
        ),
        instead_of=("hf_network",),
    ),
    Kind(
        "model_server_failed",
        "The server that generates answers (vLLM, SGLang) is not running yet, died, closed the "
        "connection or listens elsewhere; its own log says why.",
        (
            "Read the server's log: memory for the weights and the cache is the usual reason.",
            "Start the server (`trl vllm-serve`) before the training and wait until it answers, at "
            "the host and port that the trainer uses.",
        ),
        (
            Wording(
                r"\bRemoteDisconnected\('Remote end closed connection without response'\)",
                "requests.exceptions.ConnectionError: ('Connection aborted.', "
                "RemoteDisconnected('Remote end closed connection without response'))",
                "requests; TRL, extras/vllm_client.py",
                unless=r"huggingface|hf\.co|wandb|(?i:retry)",
                confidence=0.8,
            ),
            Wording(
                r"\bEngineDeadError\b|\bEngine core (?:proc \w+ died|initialization failed)"
                r"|\bAsyncEngineDeadError|\bThe vLLM server can't be reached at"
                r"|\b(?:generation|inference|rollout|reward) server (?:can't|cannot) be reached"
                r"|\bEngine process failed to start|\bWaited too long for the vLLM server"
                r"|\bEngineCore (?:encountered|failed)",
                "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
                "vLLM, vllm/v1/engine/exceptions.py",
            ),
        ),
        instead_of=("hf_network", "network_unreachable"),
    ),
    Kind(
        "server_memory",
        "The server that generates answers (vLLM, SGLang) has too little GPU memory for its share: "
        "another process, often the training itself, holds it.",
        (
            "Lower vllm_gpu_memory_utilization (0.3 to 0.5 beside a training on the same GPU) and "
            "the longest sequence (max_model_len), or give the server GPUs of its own.",
            "`nvidia-smi` shows other processes on the GPU.",
        ),
        (
            Wording(
                r"\bFree memory on device .{1,80} on startup is less than desired GPU memory"
                r"|\bNo available memory for the cache blocks"
                r"|\bis larger than the maximum number of tokens that can be stored in KV cache"
                r"|\bNot enough memory\. Please try to increase --mem-fraction-static"
                r"|\bTo serve at least one request with the models?'s max seq len",
                "ValueError: No available memory for the cache blocks. Try increasing "
                "`gpu_memory_utilization` when initializing the engine.",
                "vLLM, vllm/v1/worker/gpu_worker.py; SGLang",
            ),
        ),
        instead_of=("model_server_failed", "ray_worker_died", "cuda_oom"),
    ),
    Kind(
        "server_without_training_mode",
        "The vLLM server runs without the endpoints through which a trainer updates its weights.",
        (
            "Restart the server with VLLM_SERVER_DEV_MODE=1 in its environment, or by `trl "
            "vllm-serve`.",
        ),
        (
            Wording(
                r"\bdoes not expose its development endpoints",
                "RuntimeError: The vLLM server at http://10.0.0.1:8000 does not expose its "
                "development endpoints",
                "TRL, generation/vllm_client.py",
            ),
        ),
        instead_of=("model_server_failed",),
    ),
    Kind(
        "tracker_refused",
        "The tracker refuses this user or project: no right to write, or it does not exist.",
        (
            "Check entity and project and which account the key belongs to; or log offline and "
            "upload later.",
        ),
        (
            Wording(
                r"\bwandb[.:].{0,200}(?:\b403\b|[Pp]ermission denied)"
                r"|\bCommError: .{0,120}(?:\b40[34]\b|[Pp]ermission denied|not found)"
                r"|\bRestException: PERMISSION_DENIED|\bRestException: RESOURCE_DOES_NOT_EXIST",
                "wandb.errors.errors.CommError: Error uploading run: returned error 403: "
                "permission denied",
                "wandb, errors; MLflow, store/tracking",
                unless=r"(?i)retry",
                confidence=0.85,
            ),
        ),
        instead_of=("tracker_unreachable",),
        confidence=0.85,
    ),
    Kind(
        "tracker_params_changed",
        "MLflow keeps a run's parameters: they can't be changed, as by resuming into the same run "
        "with another setting.",
        (
            "Start a new (nested) run, that is unset MLFLOW_RUN_ID, or keep the old values; "
            "values are cut by MLFLOW_FLATTEN_PARAMS and MLFLOW_TRUNCATE_LONG_VALUES.",
        ),
        (
            Wording(
                r"\bChanging param values is not allowed|\bexceeded its limit of (?:500|6000) "
                r"characters|\bParam value .{1,80} had length \d+",
                "mlflow.exceptions.RestException: INVALID_PARAMETER_VALUE: Changing param values "
                "is not allowed.",
                "MLflow, store/tracking/sqlalchemy_store.py",
            ),
        ),
    ),
    Kind(
        "server_adapter_rank",
        "The adapter's rank is above the largest that the server was started for.",
        ("Start it with --max-lora-rank (max_lora_rank) of the adapter's r.",),
        (
            Wording(
                r"\bLoRA rank \d+ is greater than max_lora_rank",
                "ValueError: LoRA rank 32 is greater than max_lora_rank 16.",
                "vLLM, lora/peft_helper.py",
            ),
        ),
        instead_of=("model_server_failed",),
    ),
    Kind(
        "server_port_in_use",
        "A server (of a model, a dashboard) can't start: its port is taken by another process.",
        ("End the process that listens there, or give the server another port.",),
        (
            Wording(
                r"\berror while attempting to bind on address \('[^']*', (?P<port>\d+)\)"
                r"|\bAddress already in use.{0,40}port (?:7860|8000|8080|6006|8265|30000)\b"
                r"",
                "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): "
                "address already in use",
                "uvicorn; asyncio",
            ),
        ),
        instead_of=("rendezvous_port_in_use",),
    ),
    Kind(
        "ray_worker_died",
        "A worker of Ray died; its own log says why.",
        (
            "Read the worker's log under Ray's session folder (/tmp/ray/session_latest/logs); lack "
            "of memory is the usual reason.",
        ),
        (
            Wording(
                r"\b(?:ray\.exceptions\.)?(?:ActorDiedError|RayActorError|WorkerCrashedError)\b"
                r"|\bThe actor died unexpectedly before finishing this task"
                r"|\bWorker unexpectedly exits with a connection error code 2"
                r"|\bA worker died or was killed while executing",
                "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this "
                "task.",
                "Ray, python/ray/exceptions.py",
                # The error follows.
                unless=r"because of an error raised in its creation task|RayTaskError\(Actor",
                confidence=0.8,
            ),
        ),
        ends=False,
    ),
    Kind(
        "ray_resources",
        "Ray waits for resources (GPUs, CPUs) that its cluster does not have.",
        ("Compare what is asked for with `ray status`; ask for fewer, or add machines.",),
        (
            Wording(
                r"\bThe following resource request cannot be scheduled right now"
                r"|\bNo available node types can fulfill resource request",
                "Warning: The following resource request cannot be scheduled right now: {'GPU': 8}",
                "Ray, python/ray/autoscaler",
            ),
        ),
    ),
    Kind(
        "expandable_segments_refused",
        "vLLM's sleep mode keeps its memory in a pool, which expandable segments exclude.",
        (
            "Take expandable_segments:True out of PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF) for "
            "the workers, or switch sleep mode off.",
        ),
        (
            Wording(
                r"\bExpandable segments are not compatible with memory pool",
                "AssertionError: Expandable segments are not compatible with memory pool.",
                "vLLM, vllm/device_allocator/cumem.py",
            ),
        ),
        instead_of=("ray_worker_died",),
    ),
)

"""The machine, its limits and its scheduler; arguments of programs."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS = (
    Kind(
        "cache_not_writable",
        "A cache folder can't be written by this user.",
        (
            "Point it to a folder of yours: HF_HOME, TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR, "
            "XDG_CACHE_HOME, MPLCONFIGDIR.",
        ),
        (
            Wording(
                r"\bPermissionError: \[Errno 13\] Permission denied: '[^']*(?:/\.?cache|\.triton"
                r"|huggingface|torchinductor|\.config|\.local)[^']*'"
                r"|\bPermissionError at .{1,120} when downloading"
                r"|\bThere was a problem when trying to write in your cache folder",
                "PermissionError: [Errno 13] Permission denied: '/app/engine/.triton'",
                "Triton, triton/runtime/cache.py; transformers, utils/hub.py",
                unless=r"(?i)warn",
            ),
        ),
    ),
    Kind(
        "not_writable",
        "The program may not write where it wants to.",
        ("Write to the run's folder, or give this user the right to that place.",),
        (
            Wording(
                r"\bPermissionError: \[Errno 13\] Permission denied: '"
                r"|\bOSError: \[Errno 30\] Read-only file system",
                "OSError: [Errno 30] Read-only file system: '/data/out'",
                "Python",
                unless=r"/\.?cache|\.triton|huggingface|torchinductor",
                confidence=0.85,
            ),
        ),
        confidence=0.85,
        follows=("disk_failed",),
    ),
    Kind(
        "threads_exhausted",
        "No more threads or processes may be started (a limit of the user or the container).",
        ("Raise `ulimit -u` or the container's pids limit; fewer workers, OMP_NUM_THREADS=1.",),
        (
            Wording(
                r"\bcan't start new thread|\bpthread_create failed|\bBlockingIOError: \[Errno 11\] "
                r"Resource temporarily unavailable|\bfork: retry: Resource temporarily unavailable"
                r"|\bOpenBLAS blas_thread_init: pthread_create",
                "RuntimeError: can't start new thread",
                "Python, threading.py",
            ),
        ),
    ),
    Kind(
        "no_space_inodes",
        "The file system has no inodes left: too many files.",
        ("Remove small files (`df -i` shows how many there are).",),
        (
            Wording(
                r"\bno inodes? (?:left|available)|\bNo free inodes\b",
                "mkdir: no inodes left on device",
                "file systems",
                confidence=0.8,
            ),
        ),
    ),
    Kind(
        "container_failed",
        "The container could not be started.",
        (
            "Check the image's name and architecture, and that it is on the machine or may be "
            "pulled.",
        ),
        (
            Wording(
                r"\bexec format error|\bmanifest unknown|\bpull access denied for\b"
                r"|\bOCI runtime (?:create failed|exec failed)|\bImagePullBackOff|\bErrImagePull"
                r"|\bnvidia-container-cli: initialization error",
                "docker: Error response from daemon: pull access denied for abc/trainer",
                "Docker; Kubernetes",
                confidence=0.85,
            ),
        ),
    ),
    Kind(
        "hydra_config",
        "The configuration has a key or a file that is not there.",
        ("Compare the overrides with the configuration's keys; a new key needs `+key=value`.",),
        (
            Wording(
                r"\bIn 'config': Could not (?:find|load)"
                r"|\bCould not find '[^']{1,120}' in the config"
                r"|\bConfigAttributeError: |\bConfigKeyError: |\bMissingMandatoryValue: "
                r"|\bInterpolationKeyError",
                "omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct",
                "OmegaConf, omegaconf/errors.py; Hydra",
            ),
        ),
        instead_of=("arguments_refused",),
    ),
    Kind(
        "environment_variable_missing",
        "An environment variable that the program needs is not set.",
        ("Set it in the spec's environment, or list it under `secrets` where it is one.",),
        (
            Wording(
                r"\bKeyError: '(?:[A-Z][A-Z0-9]+_)+[A-Z0-9]+'",
                "  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'HF_TOKEN'",
                "Python, os.environ",
                after=r"(?:os\.environ|<frozen os>|/os\.py)",
                confidence=0.85,
            ),
        ),
    ),
    Kind(
        "evaluation_setting",
        "Saving and evaluating are set so that the best model can't be found.",
        (
            "Set save and evaluation strategies alike, and save steps a multiple of evaluation "
            "steps; or load_best_model_at_end off.",
        ),
        (
            Wording(
                r"\bload_best_model_at_end requires the sav(?:e|ing)"
                r"|\bYou have set .{0,40}eval\w*.{0,60} but .{0,40}no eval_dataset"
                r"|\bTrainer: evaluation requires an eval_dataset"
                r"|\bevaluation requires an eval_dataset",
                "ValueError: load_best_model_at_end requires the saving steps to be a round "
                "multiple of the evaluation steps",
                "transformers, training_args.py",
            ),
        ),
    ),
    Kind(
        "evaluation_too_small",
        "The evaluation split is too small to be packed into whole sequences.",
        ("Set eval_sample_packing to false, or hold out more (val_set_size).",),
        (
            Wording(
                r"\beval dataset split is too small for sample_packing",
                "ValueError: eval dataset split is too small for sample_packing.",
                "axolotl, core/trainers/base.py",
            ),
        ),
    ),
    Kind(
        "monitored_metric_missing",
        "The metric that chooses the best checkpoint, stops early or steers the schedule is not "
        "among those that were measured.",
        (
            "Take a name from the message's list (`eval_loss`; Lightning: as in `self.log(name)`), "
            "by metric_for_best_model or `monitor=`; or compute it in compute_metrics.",
        ),
        (
            Wording(
                r"\bThe .metric_for_best_model. training argument is set to .{1,60}, which is not "
                r"found in the evaluation metrics"
                r"|\bcould not find the monitored key in the returned metrics"
                r"|\bEarly stopping conditioned on metric .{1,80} which is not available"
                r"|\bReduceLROnPlateau conditioned on metric .{1,80} which is not available",
                "KeyError: \"The `metric_for_best_model` training argument is set to 'eval_bleu', "
                'which is not found in the evaluation metrics."',
                "transformers, trainer.py; Lightning, callbacks/model_checkpoint.py",
                unless=r"(?i)warn",
            ),
        ),
    ),
    Kind(
        "disk_failed",
        "The kernel reports errors of a disk or its file system, which may have become read-only "
        "for it.",
        (
            "Check the disk (`dmesg -T`, `smartctl -a`, `nvme smart-log`) and its file system "
            "(fsck); replace the disk where it is failing.",
            "Resume from the newest checkpoint that verifies, written elsewhere.",
        ),
        (
            Wording(
                r"\bRemounting filesystem read-only|\bDetected aborted journal"
                r"|\bI/O error, dev \w+, sector \d+|\bBuffer I/O error on dev"
                r"|\b(?:EXT4-fs|BTRFS|XFS) .{0,40}(?:\berror \(device|metadata I/O error"
                r"|[Ss]hutting down filesystem)",
                "EXT4-fs (sdb1): Remounting filesystem read-only",
                "Linux, fs/ext4/super.c, block/blk-core.c",
            ),
        ),
        instead_of=("io_error",),
    ),
)

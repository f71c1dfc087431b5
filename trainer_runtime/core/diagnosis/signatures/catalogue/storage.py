"""Full disks, and checkpoints that can't be read or don't match the model."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.signature import Head, Strength, signature

DISK = (
    signature(
        "disk_full/no_space",
        "space+left+device|disk+space+enough|enospc|disk+database+full|storagefull|errno+space|disk+space+enough",
        r"(?:^|: |[\"']?\[(?i:errno) 28\] |with |\(|, |[\"'] ?|- |>> )"
        r"(?:[Nn]o space left on device|ENOSPC\b)"
        r"|database or disk is full|kind: StorageFull|There is not enough space on the disk"
        r"|^(?:\w+: )?Not enough disk space\b",
        head=Head.WORDS,
        unless=r"(?i)inotify|/dev/shm|</torch_|psm_\w|posix_fallocate|shared memory|retrying",
    ),
    signature(
        "disk_full/writer",
        "pytorchstreamwriter|unexpected+pos|iostream+error|stream+iostream",
        r"PytorchStreamWriter failed writing|unexpected pos \d+ vs \d+"
        r"|basic_ios::clear: iostream error|unexpected pos\b",
        head=Head.WORDS,
        confidence=0.85,
        strength=Strength.HINTED,
    ),
    signature(
        "io_error/errno",
        "input+output+error|stale+file+handle|remote+error+errno",
        r"\[Errno 5\] Input/output error|: Input/output error(?: \(os error 5\)|\s*$|:)"
        r"|\[Errno 121\] Remote I/O error|\[Errno 116\] Stale file handle|Stale NFS file handle",
        head=Head.WORDS,
        unless=r"(?i)retrying",
        confidence=0.9,
    ),
    signature(
        "too_many_open_files/errno",
        "many+open+files|received+items+ancdata",
        r"\[Errno 24\] Too many open files"
        r"|(?:^|: )Too many open files(?: \((?:os error )?24\)|\s*$|:|\. Communication)"
        r"|received 0 items of ancdata",
        head=Head.WORDS,
        unless=r"(?i)retrying",
        confidence=0.95,
    ),
    signature(
        "disk_filling/warned",
        "free+disk+enough|free+disk+insufficient",
        r"Not enough free disk space to download the file",
        severity="warning",
        head=Head.WORDS,
        confidence=0.8,
    ),
    signature(
        "disk_quota/exceeded",
        "quota+exceeded+disk|errno+quota|quota+exceeded|edquot|os+error+quota",
        r"[Dd]isk quota .{0,20}exceeded|\[Errno 122\]|\(os error 122\)|\bEDQUOT\b"
        r"|(?:[Uu]ser|[Gg]roup|[Bb]lock|[Ff]ile|[Ii]node) (?:\w+ )?quota (?:limit )?exceeded",
        head=Head.WORDS,
        unless=r"(?i)\bquota exceeded for (?:quota )?metric|api quota|rate limit",
    ),
)

CHECKPOINTS = (
    signature(
        "checkpoint_corrupt/torch",
        "pytorchstreamreader|unpicklingerror|pickle+truncated|ran+input|eof+unexpected+corrupted"
        "|eof+unexpected|storage+wrong+size|magic+invalid+corrupt|badzipfile"
        "|weights+unable+load|archive+subdirectory|load+invalid+key|checkpoint+corrupted"
        "|checkpoint+corrupt|file+zip+crc|inline+container+found",
        r"PytorchStreamReader failed (?:reading|locating)"
        r"|UnpicklingError: (?:invalid load key|unpickling stack|A load persistent|could not find|"
        r"unexpected|the STRING)|invalid load key, '[^']{1,6}'|pickle data was truncated"
        r"|EOFError: Ran out of input"
        r"|unexpected EOF(?:, expected \d+ more bytes|\. The file)|storage has wrong size: expected"
        r"|Invalid magic number; corrupt file\??"
        r"|BadZipFile: (?:File is not|Bad CRC|Bad magic|Truncated)"
        r"|Unable to load weights from (?:pytorch )?checkpoint file for"
        r"|file in archive is not in a subdirectory"
        r"|inline_container\.cc:\d+\] ?\. file not found: archive/"
        r"|(?:Error|error): .{0,60}checkpoint\b.{0,60} is corrupt(?:ed)?\b",
        head=Head.WORDS,
        unless=r"Weights only load failed",
    ),
    signature(
        "checkpoint_corrupt/safetensors",
        "header+deserializing+error|safetensorerror|headertoolarge|metadataincompletebuffer"
        "|invalidheaderdeserialization|header+invalid+large|header+too+large",
        r"Error while deserializing header: |\bHeaderToo(?:Large|Small)\b|MetadataIncompleteBuffer"
        r"|InvalidHeader(?:Deserialization|Length|Start)?\b"
        r"|incomplete metadata, file not fully covered",
        head=Head.WORDS,
        unless=r"No space left",
    ),
    signature(
        "checkpoint_shape_mismatch/size",
        "size+mismatch+shape|size+mismatch+saved|mismatched+sizes+raising|tensor+trying+incorrect"
        "|parameter+loaded+group|parameter+loaded+groups|global+shape+mismatch|mismatched+sizes+set",
        r"size mismatch for [\w.]+: copying a param with shape"
        r"|[Ss]ize mismatch between saved torch\.Size|Global shape mismatch for loaded"
        r"|(?:You set )?`ignore_mismatched_sizes` to `False`"
        r"|Trying to set a tensor of shape torch\.Size.{0,160}this \w+ incorrect"
        r"|loaded state dict (?:contains a parameter group that doesn't match"
        r"|has a different number)",
        head=Head.WORDS,
    ),
    signature(
        "checkpoint_shape_mismatch/keys",
        "loading+errors+state|loading+error+state|missing+key+statedict|missing+keys+state",
        r"Error\(s\) in loading state_dict for \w+|^\s*Missing key\(s\) in state_dict: ",
        head=Head.WORDS,
        confidence=0.7,
        strength=Strength.HINTED,
    ),
)

SIGNATURES = (*DISK, *CHECKPOINTS)

"""Which objects of a store a source reads: plan and host select them by the same rule."""

from __future__ import annotations

from trainer_runtime.core.inputs.hub_dataset import (
    NotInDatasetError,
    data_files,
    files_of_format,
)
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.train.data.stored_objects import StoredObject, StoredObjects


def objects_of_source(
    stored: StoredObjects, data_format: str
) -> tuple[StoreAddress, list[StoredObject]]:
    """What the names are relative to, and the objects of the format; empty ones are left out.

    Raises:
        StoreError: the store doesn't list them.
        NotInDatasetError: none is of the format; the message names one that some are of.
    """
    root, objects = stored.list()
    by_name = {item.name: item for item in objects if item.size_bytes}
    shown = data_files(by_name)
    if not shown:
        raise NotInDatasetError("its objects are empty, or hidden, descriptions or credentials")
    names = files_of_format(shown, data_format)
    return root, [by_name[name] for name in names]

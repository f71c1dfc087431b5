"""Lists the objects of a store that a source reads, for the plan, and reads the begin of the first.

`python -m trainer_runtime.train.data.list_store`, started by the client with the variables that say
who asks: a request on standard input, the answer as one line of JSON on standard output.
"""

from __future__ import annotations

import base64
import json
import sys

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.inputs.hub_dataset import NotInDatasetError
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.train.data.source_objects import objects_of_source
from trainer_runtime.train.data.stored_objects import StoredObjects, StoreError


def main() -> int:
    """Answer a request; 0 also where the store has an obstacle, which the answer names then."""
    request = decode_fields(sys.stdin.buffer.read(), "request", max_bytes=MAX_DOCUMENT_BYTES)
    address = StoreAddress.find(request.text("url"))
    if address is None:
        return 2
    try:
        stored = StoredObjects(address)
        root, objects = objects_of_source(stored, request.text("format"))
        begin = stored.read(root.below(objects[0].name), 0, request.integer("first_bytes"))
    except StoreError as error:
        print(json.dumps({"obstacle": error.obstacle.value, "reason": str(error)}))
        return 0
    except NotInDatasetError as error:
        print(json.dumps({"problem": str(error)}))
        return 0
    rows = [[item.name, item.size_bytes, item.etag] for item in objects]
    answer = {"root": str(root), "objects": rows, "begin": base64.b64encode(begin).decode()}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())

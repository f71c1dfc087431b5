"""Object stores: the addresses of what lies in them, and what reading them takes.

fsspec reads them all, each by a package of its own. Who asks, and whom, stands in environment
variables that the stores' own tools read, too; the keys among them are a run's `secrets`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# A bucket is not asked for more objects than these.
MOST_OBJECTS = 100_000
_ADDRESS = re.compile(
    r"(?P<scheme>s3|gs|az)://(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]{1,221})"
    r"(?:/(?P<key>[^\x00-\x1f\x7f*?\[\]{}#\\]{1,1000}))?",
)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """`package`: a requirement, whose module fsspec takes by the address's scheme. `keys`: the
    secrets that a run usually has for it; `variables`: what else says who asks, and whom."""

    title: str
    package: str
    keys: tuple[str, ...]
    variables: tuple[str, ...]


# The packages' versions are fsspec's, which `datasets` bounds.
STORES: Mapping[str, ObjectStore] = {
    "s3": ObjectStore(
        "S3",
        "s3fs>=2024.6,<2027",
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        (
            "AWS_SESSION_TOKEN",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_REGION",
            "AWS_DEFAULT_REGION",
        ),
    ),
    "gs": ObjectStore(
        "Google Cloud Storage",
        "gcsfs>=2024.6,<2027",
        ("GOOGLE_CREDENTIALS",),
        ("STORAGE_EMULATOR_HOST",),
    ),
    "az": ObjectStore(
        "Azure Blob Storage",
        "adlfs>=2024.7,<2027",
        ("AZURE_STORAGE_CONNECTION_STRING",),
        ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    ),
}
BEGINNINGS = tuple(f"{scheme}://" for scheme in STORES)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """`SCHEME://BUCKET/KEY`: an object, or all below a prefix; without a key the whole bucket."""

    scheme: str
    bucket: str
    key: str = ""

    @classmethod
    def find(cls, path: str) -> StoreAddress | None:
        """The address that a path is; None where it is none."""
        match = _ADDRESS.fullmatch(path)
        if match is None:
            return None
        key = (match["key"] or "").rstrip("/")
        if any(part in ("", ".", "..") for part in key.split("/")) and key:
            return None
        return cls(match["scheme"], match["bucket"], key)

    def __str__(self) -> str:
        return "/".join(filter(None, (f"{self.scheme}://{self.bucket}", self.key)))

    @property
    def store(self) -> ObjectStore:
        return STORES[self.scheme]

    @property
    def path(self) -> str:
        """As fsspec takes it."""
        return "/".join(filter(None, (self.bucket, self.key)))

    def below(self, name: str) -> StoreAddress:
        """What lies below this address under a name."""
        return StoreAddress(self.scheme, self.bucket, "/".join(filter(None, (self.key, name))))


def packages_of(places: Iterable[str]) -> tuple[str, ...]:
    """The requirements that reading or writing these places takes; none for other places."""
    addresses = filter(None, map(StoreAddress.find, places))
    return tuple(sorted({address.store.package for address in addresses}))


def own_variables(address: StoreAddress, environment: Mapping[str, str]) -> dict[str, str]:
    """Those of an environment that say who asks a store, and whom: none of these runs anything."""
    names = (*address.store.keys, *address.store.variables)
    return {name: environment[name] for name in names if environment.get(name)}

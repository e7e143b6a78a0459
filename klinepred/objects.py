"""In: an address such as s3://desk/bars. Out: `ObjectPath`: object storage, asked what is asked of a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from klinepred.errors import StoreError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

ADDRESS: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/(?!\.{1,2}(/|$))[A-Za-z0-9_.=-]+)*")
"""What an address may look like: nothing in it that needs an escape, and no credentials."""
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


@dataclass(frozen=True)
class Stat:
    """Bytes of an object, and when it was written (seconds since 1970)."""

    st_size: int
    st_mtime: float


@dataclass(frozen=True)
class ObjectPath:
    """A place in object storage, with those verbs of `pathlib.Path` that the store needs.

    A folder is what objects have at the beginning of their names. Whoever may read and write is said by the usual
    variables of the environment, which the libraries read themselves: nothing of it passes through here.

    Attributes
    ----------
    address
        Such as s3://desk/bars, without a slash at the end.

    Raises
    ------
    StoreError
        By every verb: the storage does not answer, or does not let us.
    """

    address: str

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.address}/{name}")

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]

    def as_uri(self) -> str:
        return self.address

    def is_file(self) -> bool:
        return self._info() is not None

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def is_dir(self) -> bool:
        return any(True for _ in self.iterdir())

    def stat(self) -> Stat:
        """FileNotFoundError where there is no such object."""
        info = self._info()
        if info is None:
            raise FileNotFoundError(self.address)
        return _stat(info)

    def iterdir(self) -> Iterator[ObjectPath]:
        """What lies right below; nothing where there is no such folder."""
        return (self / info.base_name for info in self._list(deep=False))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """What lies right below and has such a name."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator[ObjectPath]:
        """Objects anywhere below that have such a name."""
        return (self / name for name in self.sizes() if fnmatchcase(name.rpartition("/")[2], pattern))

    def sizes(self) -> dict[str, int]:
        """Bytes of each object below, by its name from here on: one question for up to a thousand of them."""
        skip = len(self._key()) + 1 if self._key() else 0
        return {info.path[skip:]: int(info.size) for info in self._list(deep=True) if info.is_file}

    def read_bytes(self) -> bytes:
        """FileNotFoundError where there is no such object."""
        with _told(self.address), self._bucket().open_input_file(self._key()) as source:
            return bytes(source.read())

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the object; storage does not tell whether there was one."""
        with _told(self.address):
            self._bucket().delete_file(self._key())

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: folders need not be made."""

    def _key(self) -> str:
        return self.address.removeprefix("s3://").partition("/")[2]

    def _bucket(self) -> Any:
        return _handler("s3://" + self.address.removeprefix("s3://").partition("/")[0], endpoint())

    def _info(self) -> FileInfo | None:
        with _told(self.address):
            found: list[FileInfo] = self._bucket().get_file_info([self._key()])
        return found[0] if found[0].is_file else None

    def _list(self, *, deep: bool) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        with _told(self.address):
            return list(
                self._bucket().get_file_info_selector(FileSelector(self._key(), allow_not_found=True, recursive=deep))
            )


Place: TypeAlias = Path | ObjectPath
"""Where tables lie: in a folder, or on object storage."""


def inner_name(path: Place, folder: Place) -> str:
    """The name of `path` from `folder` on, with slashes."""
    whole = path.as_posix() if isinstance(path, Path) else str(path)
    above = folder.as_posix() if isinstance(folder, Path) else str(folder)
    return whole.removeprefix(f"{above}/")


def endpoint() -> str:
    """The server that is asked instead of Amazon's; empty = none is named."""
    return next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")


def options_for(place: Place) -> dict[str, str] | None:
    """What deltalake and polars are told besides their variables of the environment: never a credential.

    Without encryption they speak to this machine alone; anything else takes `AWS_ALLOW_HTTP=true`.
    """
    if isinstance(place, Path):
        return None
    server = urlsplit(endpoint())
    near = server.scheme == "http" and server.hostname in ("127.0.0.1", "localhost", "::1")
    # the libraries know a server they have met by what they were told, not by the environment of the time
    named = {"aws_endpoint_url": endpoint()} if endpoint() else {}
    return {**named, **({"aws_allow_http": "true"} if near else {})}


def said(error: BaseException) -> str:
    """One line of what a library said of object storage, without colours, and without what proves who asks."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).replace("↳", " ")
    for name in SECRETS:
        if os.environ.get(name):
            text = text.replace(os.environ[name], "…")
    return " ".join(text.split())[:400] or type(error).__name__


@lru_cache
def _handler(bucket: str, _endpoint: str) -> Any:
    from deltalake.fs import DeltaStorageHandler

    return DeltaStorageHandler(bucket, options_for(ObjectPath(bucket)))


@contextmanager
def _told(address: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # the library raises whatever its layers raise
        raise StoreError(
            f"object storage {address}",
            expected="an answer",
            got=said(error),
            do="check the address, AWS_REGION, AWS_ENDPOINT_URL and the credentials in the environment",
        ) from error


def _stat(info: FileInfo) -> Stat:
    return Stat(int(info.size), (info.mtime_ns or 0) / 1e9)

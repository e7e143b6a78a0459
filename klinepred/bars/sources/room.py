"""In: streams of bytes. Out: temporary files with them, in one folder that is removed afterwards, within the disk."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final

from klinepred.errors import SourceError

CHUNK: Final = 1 << 20
"""Bytes that are read and written at once."""
RESERVE: Final = 256 << 20
"""Bytes of the disk that unpacking leaves free."""
LOOK_EVERY: Final = 64 << 20
"""Bytes written between two looks at the free room."""


class Room:
    """A folder of our own for unpacked and re-encoded copies; made with the first file, removed on the way out.

    No name that a file or an archive brings along is ever used in it.
    """

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0

    def __enter__(self) -> Room:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def path(self) -> Path:
        """A name for one more file, not there yet."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="klinepred-", ignore_cleanup_errors=True)
        self._files += 1
        return Path(self._folder.name) / str(self._files)

    def keep(self, chunks: Iterable[bytes], *, where: str) -> Path:
        """A new file with `chunks`, which are never all in memory.

        Raises
        ------
        SourceError
            The disk of temporary files has no room for them.
        """
        try:
            path = self.path()
            written, looked = 0, -LOOK_EVERY
            with path.open("wb") as file:
                for chunk in chunks:
                    if written - looked >= LOOK_EVERY:
                        looked = written
                        _look(path.parent)
                    file.write(chunk)
                    written += len(chunk)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENOENT):
                raise
            raise SourceError(
                where,
                expected=f"room for an unpacked copy in {tempfile.gettempdir()}",
                got=error.strerror or str(error),
                do="free some, set TMPDIR to a folder with more, or unpack the file yourself",
            ) from error
        return path


def _look(folder: Path) -> None:
    if shutil.disk_usage(folder).free < RESERVE + LOOK_EVERY:
        raise OSError(errno.ENOSPC, f"less than {RESERVE + LOOK_EVERY >> 20} MiB are free")

"""In: a folder, names chosen by users. Out: where everything of a workspace lies, safe file names, atomic writes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath, PureWindowsPath
from typing import BinaryIO
from urllib.parse import quote, unquote

from klinepred.errors import UsageError


@dataclass(frozen=True, init=False)
class Workspace:
    """The folder a user works in: `pipelines/ models/ mlruns/ data/`.

    Nothing is created until something is written.

    Parameters
    ----------
    root
        The folder; made absolute. It need not exist, but must not be a file.

    Raises
    ------
    UsageError
        `root` is a file.
    """

    root: Path

    def __init__(self, root: str | Path = ".") -> None:
        path = Path(root).expanduser().absolute()
        if path.exists() and not path.is_dir():
            raise UsageError(
                f"workspace {path}", expected="a folder", got="a file", do="pass -w with the folder to work in"
            )
        object.__setattr__(self, "root", path)

    @property
    def pipelines(self) -> Path:
        return self.root / "pipelines"

    @property
    def presets(self) -> Path:
        return self.root / "models" / "presets"

    @property
    def trained(self) -> Path:
        return self.root / "models" / "trained"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def mlruns(self) -> Path:
        return self.root / "mlruns"

    @property
    def artifacts(self) -> Path:
        return self.mlruns / "artifacts"

    @property
    def tracking_uri(self) -> str:
        """The MLflow store of this workspace as a SQLAlchemy URI (an environment variable may overrule it)."""
        return sqlite_uri(self.mlruns / "mlflow.db")


def sqlite_uri(path: PurePath) -> str:
    """URI that SQLAlchemy opens as the SQLite file `path`.

    Blanks and letters beyond ASCII stay as they are; the three characters that would end the path or start an escape
    (`%`, `?`, `#`) are percent-encoded. Windows drives give `sqlite:///C:/…`.
    """
    text = path.as_posix()
    for char in "%?#":
        text = text.replace(char, quote(char))
    return f"sqlite:///{text}" if isinstance(path, PureWindowsPath) or text.startswith("/") else f"sqlite:///./{text}"


def file_name(symbol: str) -> str:
    """A file name for `symbol` on any file system: letters, digits, `-` and `_` stay, all else is percent-encoded.

    Upper and lower case stay apart where the file system folds case (`brk-b` and `BRK-B`), and the reserved names of
    Windows (`CON`, `NUL`) cannot come out: lower-case letters carry a leading `_`. `symbol_of` is the inverse.
    """
    out = []
    for char in symbol:
        if char.isascii() and (char.isdigit() or char.isupper() or char == "-"):
            out.append(char)
        elif char.isascii() and char.islower():
            out.append(f"_{char}")
        else:
            out.append("".join(f"%{byte:02X}" for byte in char.encode()))
    return "~" + "".join(out)


def symbol_of(name: str) -> str:
    """The symbol whose `file_name` is `name`."""
    return unquote(name.removeprefix("~").replace("_", ""))


def defaults_dir() -> Path:
    """The folder with the shipped `pipelines/` and `presets/`, in a wheel and in an editable install alike."""
    package = Path(__file__).resolve().parent
    shipped = package / "defaults"
    return shipped if shipped.is_dir() else package.parent


def default_pipelines() -> Path:
    """The folder of the shipped pipelines."""
    return defaults_dir() / "pipelines"


def default_presets() -> Path:
    """The folder of the shipped model presets."""
    root = defaults_dir()
    return root / "presets" if (root / "presets").is_dir() else root / "models" / "presets"


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write `content` to `path` so that a reader sees either the old file or the whole new one.

    The bytes reach the disk before the name changes; on failure the old file is as it was and no partial file stays.
    """
    payload = content.encode() if isinstance(content, str) else content
    with open_atomic(path) as out:
        out.write(payload)


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write that takes the name `path` when the block ends well, as `write_atomic` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

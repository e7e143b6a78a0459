"""In: a folder, names chosen by users. Out: where everything of a workspace lies, safe file names, atomic writes."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath, PureWindowsPath
from typing import BinaryIO
from urllib.parse import quote, unquote

from klinepred.errors import UsageError
from klinepred.objects import ObjectPath, Place
from klinepred.places import read_places


@dataclass(frozen=True, init=False)
class Workspace:
    """The folder a user works in: `pipelines/ models/ mlruns/ data/`.

    Nothing is created until something is written.

    Parameters
    ----------
    root
        The folder; made absolute. It need not exist, but neither it nor a folder above it may be a file.

    Raises
    ------
    UsageError
        `root`, or what it should lie in, is a file or an address; its `~user` does not exist; or it is no text.
    """

    root: Path

    def __init__(self, root: str | Path = ".") -> None:
        if re.match(r"[a-z][a-z0-9+]+:/", str(root)):  # Path makes one slash of two
            raise UsageError(
                f"workspace {re.sub(':/+', '://', str(root))}",
                expected="a folder of this machine; its bars and artifacts may lie on object storage",
                got="an address",
                do="klinepred init DIR --store s3://BUCKET/PREFIX, then work with -w DIR",
            )
        try:
            path = Path(root).expanduser().absolute()
        except RuntimeError as error:
            raise UsageError(
                f"workspace {root}", expected="a folder", got=str(error), do="write the path without ~"
            ) from error
        if fault := no_text(path):
            raise UsageError(f"workspace {str(path)!a}", expected="a path in UTF-8", got=fault[0], do=fault[1])
        there = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
        if not there.is_dir():
            raise UsageError(
                f"workspace {path}",
                expected="a folder",
                got=f"{there}, which is not one",
                do="pass -w with the folder to work in",
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
    def store(self) -> Place:
        """Where the tables of bars lie: `data`, or the address that klinepred.toml gives.

        Raises
        ------
        ConfigError
            As `klinepred.places.read_places`.
        """
        address = read_places(self.root).store
        return self.data if address is None else ObjectPath(address)

    @property
    def features(self) -> Path:
        return self.data / "features"

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


def no_text(path: PurePath) -> tuple[str, str] | None:
    """What is wrong with a path that not every library would take for the same one, and what to do; None: nothing.

    Python keeps bytes that are no UTF-8 as half signs; and where it takes names of files for another encoding (ASCII in
    the locale C without UTF-8 mode), Delta and polars, which know UTF-8 alone, would look elsewhere.
    """
    text, encoding = str(path), sys.getfilesystemencoding()
    if encoding.lower().replace("-", "") != "utf8" and not text.isascii():
        told = f"names of files are taken for {encoding} (PYTHONUTF8=0, or an older locale)"
        return told, "unset PYTHONUTF8, or set it to 1, and run the same command again"
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        return "bytes that are none", "rename the file or its folder"
    return None


def sqlite_uri(path: PurePath) -> str:
    """URI that SQLAlchemy opens as the SQLite file `path`.

    Blanks and letters beyond ASCII stay as they are; the three characters that would end the path or start an escape
    (`%`, `?`, `#`) are percent-encoded. The driver is named then: MLflow makes the folder that it reads in a URI
    without one, escapes and all. Windows drives give `sqlite:///C:/…`.
    """
    text = path.as_posix()
    for char in "%?#":
        text = text.replace(char, quote(char))
    scheme = "sqlite" if text == path.as_posix() else "sqlite+pysqlite"
    return (
        f"{scheme}:///{text}" if isinstance(path, PureWindowsPath) or text.startswith("/") else f"{scheme}:///./{text}"
    )


def file_name(symbol: str) -> str:
    """A file name for `symbol` on any file system; `symbol_of` is the inverse.

    ASCII capitals, digits and `-` stay, small letters get a `_` before them, all else is percent-encoded. So small and
    capital letters stay apart where the file system folds case (`brk-b` and `BRK-B`), nothing climbs out of a folder,
    and the leading `~` keeps the reserved names of Windows (`CON`, `NUL`) from coming out.
    """
    out = []
    for char in symbol:
        if char.isascii() and (char.isdigit() or char.isupper() or char == "-"):
            out.append(char)
        elif char.isascii() and char.islower():
            out.append(f"_{char}")
        else:
            out.append("".join(f"%{byte:02X}" for byte in char.encode(errors="surrogatepass")))
    return "~" + "".join(out)


def symbol_of(name: str) -> str:
    """The symbol whose `file_name` is `name`."""
    return unquote(name.removeprefix("~").replace("_", ""), errors="surrogatepass")


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
    """Write `content` to `path` so that a reader sees either the old file or the whole new one; see `open_atomic`."""
    with open_atomic(path) as out:
        out.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A place to write what will be `folder`, which appears whole when the block ends without an error.

    Raises
    ------
    OSError
        There is no room or permission, or a folder of that name; nothing of the new one stays.
    """
    import shutil
    import tempfile

    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    try:
        yield part
        os.chmod(part, 0o755)  # noqa: S103  # mkdtemp made it private; a model is not
        os.rename(part, folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing so that its new content appears whole when the block ends without an error.

    The bytes reach the disk before the name changes; on failure the old file is as it was and no partial file stays.
    A symbolic link stays one, its target is replaced. What is no file (`/dev/null`, a pipe) is written to directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as out:
            yield out
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        if path.exists():
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise

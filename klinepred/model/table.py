"""In: a bundle's folder. Out: its table in JSON and its files, as they were written; or why it is no bundle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from klinepred.errors import ModelError

FORMAT: Final = 4
"""1: one network, without the options of today's. 2: several networks, told by `members`. 3: golden inputs and outputs,
novelty. 4: golden bars. All are read."""
WEIGHTS: Final = "weights.safetensors"
TABLE: Final = "bundle.json"
SEAL: Final = "content_sha256"
PICKLED: Final = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib", ".npy", ".npz")
"""Endings of files that other programs keep models in."""


def read_table(folder: Path) -> dict[str, Any]:
    """The JSON part of a bundle, without loading torch's weights.

    Raises
    ------
    ModelError
        There is no such folder, it is no bundle of klinepred, of a newer format, or was changed after it was saved.
    """
    if not folder.is_dir():
        raise foreign(folder, f"a file{_unopened([folder])}" if folder.exists() else "no such folder")
    try:
        table = json.loads((folder / TABLE).read_text(encoding="utf-8"))
    except OSError as error:
        raise foreign(folder, f"no readable {TABLE}{_unopened(sorted(folder.iterdir()))}") from error
    except (ValueError, RecursionError) as error:
        raise foreign(folder, f"{TABLE} that is not JSON") from error
    number = table.get("klinepred_bundle") if isinstance(table, dict) else None
    if not isinstance(number, int) or number > FORMAT or number < 1:
        raise foreign(folder, f"format {number!r:.60}")
    try:
        seal = _seal(table)
    except RecursionError:
        seal = ""
    if table.get(SEAL) != seal:
        raise foreign(folder, f"{TABLE} that was changed after it was saved (its checksum is another)")
    return dict(table)


def read_checked(folder: Path, name: str, digest: object) -> bytes:
    """A file of a bundle whose checksum stands in its table.

    Raises
    ------
    ModelError
        It cannot be read, or is not as it was written.
    """
    try:
        payload = (folder / name).read_bytes()
    except OSError as error:
        raise foreign(folder, f"no readable {name}: {error.strerror}") from error
    if hashlib.sha256(payload).hexdigest() != digest:
        raise foreign(folder, f"{name} whose checksum is not the one in {TABLE}")
    return payload


def sealed(table: dict[str, Any]) -> dict[str, Any]:
    """`table` with the checksum that guards it against edits: scaler and calibration decide as much as weights do."""
    return {**table, SEAL: _seal(table)}


def foreign(folder: Path, got: str) -> ModelError:
    """The error that says why a folder is no bundle."""
    return ModelError(
        f"model {folder}",
        expected=f"a folder with {TABLE} and {WEIGHTS} as `klinepred train` writes it, format 1 to {FORMAT}",
        got=got,
        do="choose one from `klinepred models list`, or train one",
    )


def _seal(table: dict[str, Any]) -> str:
    plain = {key: value for key, value in table.items() if key != SEAL}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _unopened(paths: list[Path]) -> str:
    found = [path.name for path in paths if path.suffix.lower() in PICKLED]
    return (
        f": {', '.join(found[:3])} may hold a pickle, which runs code when it is loaded, and was not opened"
        if found
        else ""
    )

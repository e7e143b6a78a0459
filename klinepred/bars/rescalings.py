"""In: the log of the bars table. Out: a row for each time the stored bars of a symbol were put on another basis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import polars as pl

from klinepred.bars.commits import LOG, NOTE, list_versions, read_commit
from klinepred.bars.tables import BARS
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from klinepred.schema import TS

KEY: Final = "rescaled"
SCHEMA: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    "version": pl.Int64(),
    "time": TS,
    "kind": pl.String(),
    "evidence": pl.String(),
    "price_factor": pl.Float64(),
    "volume_factor": pl.Float64(),
    "bars": pl.Int64(),
    "from_ts": TS,
    "to_ts": TS,
}


def list_rescalings(
    space: Workspace, *, symbols: Sequence[str] | None = None, version: int | None = None
) -> pl.DataFrame:
    """What commits up to `version` (None = the latest) say of rescaled symbols, by symbol and version.

    Returns
    -------
    polars.DataFrame
        `SCHEMA`: symbol, version and time of the commit, kind (split or unit), evidence (source or overlap), the
        factors of prices and volumes, how many stored bars were rescaled, the first and the last of them (null where
        all came anew).

    Raises
    ------
    StoreError
        The entry of the log that tells of one is damaged.
    """
    folder, word = space.store / BARS, f"{NOTE}{KEY}".encode()
    rows = list[tuple[Any, ...]]()
    for number in list_versions(folder):
        if (version is None or number <= version) and word in (folder / LOG / f"{number:020}.json").read_bytes():
            commit = read_commit(folder, number)
            try:
                rows += [
                    (
                        str(one["symbol"]),
                        number,
                        commit.time,
                        one["kind"],
                        one["evidence"],
                        float(one["price_factor"]),
                        float(one["volume_factor"]),
                        int(one["bars"]),
                        *(datetime.fromisoformat(one[edge]) if one[edge] else None for edge in ("from", "to")),
                    )
                    for one in json.loads(commit.note[KEY])
                ]
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"store {folder}",
                    expected=f"the record of rescaled symbols in version {number}",
                    got=f"one that cannot be read: {str(error)[:100]}",
                    do=f"put {number:020}.json of {LOG} back from a backup",
                ) from error
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("symbol", "version")
    return table if symbols is None else table.filter(pl.col("symbol").is_in(list(symbols)))

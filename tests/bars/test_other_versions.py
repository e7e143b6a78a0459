"""In: stores with other columns, as another klinepred might write them. Out: a refusal in words; nothing is written."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

from klinepred.bars.ingest import ingest
from klinepred.bars.tables import BARS
from klinepred.paths import Workspace
from tests.bars.made import NOW, from_files, walk
from tests.conftest import Typed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vwap": pl.lit(1.0)}, "with vwap besides"),
        ({"volume": None}, "without volume"),
        ({"volume": None, "turnover": pl.lit(1.0)}, "without volume, with turnover besides"),
    ],
)
def test_a_store_of_other_columns_is_refused_and_stays_as_it_is(
    tmp_path: Path, typed: Typed, change: dict[str, pl.Expr | None], told: str
) -> None:
    walk(["A"]).write_parquet(tmp_path / "a.parquet")
    ingest(from_files(tmp_path / "a.parquet"), Workspace(tmp_path), now=NOW)
    table = tmp_path / "data" / BARS
    (part,) = table.rglob("*.parquet")
    rows = pl.read_parquet(part, hive_partitioning=False)
    rows = rows.drop([column for column, value in change.items() if value is None])
    rows = rows.with_columns(**{column: value for column, value in change.items() if value is not None})
    rows = rows.with_columns(month=pl.lit("2026-06"))
    write_deltalake(table, rows.to_arrow(), mode="overwrite", schema_mode="overwrite", partition_by=["month"])
    before = {path: path.read_bytes() for path in table.rglob("*") if path.is_file()}
    for words in (["bars", "show"], ["ingest", str(tmp_path / "a.parquet"), "--now", "2026-11-30"]):
        code, out, err = typed(*words, "-w", str(tmp_path))
        assert (code, out) == (1, "")
        assert f"got:      one {told}" in err
        assert "with the klinepred that wrote it" in err
    assert {path: path.read_bytes() for path in table.rglob("*") if path.is_file()} == before

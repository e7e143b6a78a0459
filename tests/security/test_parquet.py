"""In: Parquet and Arrow files with payloads where programs keep pickles. Out: plain bars or a refusal; nothing runs."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import polars as pl
import psutil
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from klinepred.bars.ingest import ingest
from klinepred.bars.store import scan_bars
from klinepred.errors import SourceError
from klinepred.paths import Workspace
from tests.bars.made import NOW, from_files, walk
from tests.security.poison import marker_in, poison


def poisoned(folder: Path) -> pa.Table:
    """Bars whose metadata are pickles to those who would load them."""
    payload = poison(folder, protocol=0)  # letters alone: metadata that is no text is refused
    table = walk(["A"], days=2).to_arrow(compat_level=pl.CompatLevel.oldest())
    pandas = {"index_columns": [], "columns": [], "attributes": {"x": base64.b64encode(payload).decode()}}
    about = {b"pandas": json.dumps(pandas).encode(), b"PANDAS_ATTRS": payload, b"polars": payload, b"pickle": payload}
    return table.replace_schema_metadata(about)


def python_typed(folder: Path) -> pa.Table:
    """Bars of which a column is of a type that pyarrow once made by loading a pickle."""
    table = walk(["A"], days=2).to_arrow(compat_level=pl.CompatLevel.oldest())
    payload = poison(folder, protocol=0)
    python_type: dict[bytes | str, bytes | str] = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": payload,
    }
    fields = [field.with_metadata(python_type) if field.name == "volume" else field for field in table.schema]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def test_a_column_of_a_type_from_a_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    parquet.write_table(python_typed(tmp_path), tmp_path / "x.parquet")
    feather.write_feather(python_typed(tmp_path), str(tmp_path / "x.feather"))
    for name in ("x.parquet", "x.feather"):
        with pytest.raises(SourceError):
            ingest(from_files(tmp_path / name), Workspace(tmp_path / "w"), now=NOW)
    assert not marker_in(tmp_path).exists()


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_payloads_in_metadata_do_not_run_and_the_bars_are_read(tmp_path: Path, kind: str) -> None:
    table = poisoned(tmp_path)
    path = tmp_path / f"x.{kind}"
    if kind == "parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, str(path))
    assert b"mkdir" in path.read_bytes()
    ingest(from_files(path), Workspace(tmp_path / "w"), now=NOW)
    assert scan_bars(Workspace(tmp_path / "w")).collect().height == 2 * 78
    assert not marker_in(tmp_path).exists()


@pytest.mark.parametrize("column", ["symbol", "close"])
def test_columns_of_pickles_are_no_bars_and_do_not_run(tmp_path: Path, column: str) -> None:
    frame = walk(["A"], days=1)
    frame.with_columns(pl.lit(poison(tmp_path)).alias(column)).write_parquet(tmp_path / "x.parquet")
    try:
        report = ingest(from_files(tmp_path / "x.parquet"), Workspace(tmp_path / "w"), now=NOW)
        new = sum(row.new for row in report.symbols)
    except SourceError:
        new = 0
    assert new == 0
    assert not marker_in(tmp_path).exists()


def test_a_pickle_named_as_a_file_of_bars_is_refused(tmp_path: Path) -> None:
    for name in ("AAPL.parquet", "AAPL.csv", "AAPL.json", "AAPL.feather", "AAPL.zip"):
        (tmp_path / name).write_bytes(poison(tmp_path))
        with pytest.raises(SourceError):
            ingest(from_files(tmp_path / name), Workspace(tmp_path / "w"), now=NOW)
    assert not marker_in(tmp_path).exists()


def test_more_rows_than_memory_holds_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = walk(["A"], days=1)
    pl.concat([frame] * 1_000).write_parquet(tmp_path / "x.parquet")
    free = type("Free", (), {"available": 1_000_000})
    monkeypatch.setattr(psutil, "virtual_memory", free)
    with pytest.raises(SourceError, match="78,000 rows") as caught:
        ingest(from_files(tmp_path / "x.parquet"), Workspace(tmp_path / "w"), now=NOW)
    assert "smaller files" in caught.value.do

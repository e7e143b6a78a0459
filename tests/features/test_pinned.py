"""In: answers/pinned.csv. Out: numbers of features do not change while their fingerprint stays the same."""

# To renew the table after a wanted change (raise the feature's `revision` where its formula stays as it was):
#   python -c "from tests.features.test_pinned import write; write()"

from __future__ import annotations

from pathlib import Path

import polars as pl

from klinepred.features.build import F50
from tests.features.frames import differ, float64, market

TABLE = Path(__file__).parent / "answers" / "pinned.csv"
FINGERPRINT = TABLE.with_name("pinned.txt")


def _now() -> pl.DataFrame:
    bars = market("ABCDEF", start="2026-11-02", days=32, seed=77, lost=0.02, still=0.05, silent=0.05)
    chosen = pl.int_range(pl.len()).over("symbol") % 137 == 20
    table = float64(bars).filter(chosen & pl.col("symbol").is_in(["A", "F"]))
    return table.with_columns(pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%SZ"))


def write() -> None:
    """Renew the table and the fingerprint it goes with."""
    _now().with_columns(pl.col(pl.Float64).round_sig_figs(12)).write_csv(TABLE)
    FINGERPRINT.write_text(F50.fingerprint + "\n")


def test_numbers_change_only_with_the_fingerprint() -> None:
    assert FINGERPRINT.read_text().strip() == F50.fingerprint, "new fingerprint: renew the table, see above"
    now = _now()
    pinned = pl.read_csv(TABLE, schema_overrides=dict.fromkeys(F50.names, pl.Float64))
    assert pinned.select("symbol", "ts").equals(now.select("symbol", "ts"))
    assert differ(pinned, now) == {}


def test_the_table_has_a_number_of_every_feature() -> None:
    pinned = pl.read_csv(TABLE, schema_overrides=dict.fromkeys(F50.names, pl.Float64))
    assert [name for name in F50.names if pinned[name].is_not_null().sum() < 5] == []
    assert TABLE.stat().st_size < 60_000

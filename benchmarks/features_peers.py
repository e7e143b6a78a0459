"""In: bars as a .npy file. Out: how fast peers compute the indicators they share, each in its own interpreter."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.peers import python_of

# Each script reads [N, 6] float64 (number of the symbol, open, high, low, close, volume), computes per symbol, and
# prints seconds and the number of indicators. The first run, which compiles or loads, is not counted.
_READ = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
table = np.load(sys.argv[1])
cuts = np.flatnonzero(np.diff(table[:, 0])) + 1
parts = [part[:, 1:] for part in np.split(table, cuts)]
def race(one, count):
    one(parts[0])
    best = 1e9
    for _ in range(2):
        begin = time.perf_counter()
        for part in parts:
            one(part)
        best = min(best, time.perf_counter() - begin)
    print(json.dumps({"s": best, "indicators": count, "rows": len(table)}))
"""

SCRIPTS: Final[Mapping[str, str]] = {
    "pandas-ta-classic": _READ
    + """
import pandas as pd, pandas_ta_classic as ta
def one(part):
    o, h, l, c, v = (pd.Series(part[:, spot]) for spot in range(5))
    ta.rsi(c, 14), ta.atr(h, l, c, 14), ta.adx(h, l, c, 14), ta.cci(h, l, c, 20), ta.mfi(h, l, c, v, 14)
    ta.macd(c, 12, 26, 9), ta.aroon(h, l, 25), ta.stoch(h, l, c, 14)
race(one, 8)
""",
    "ml4t-engineer": _READ
    + """
import polars as pl
from ml4t.engineer import compute_features
wanted = [{"name": name, "params": params} for name, params in [
    ("rsi", {"period": 14}), ("atr", {"period": 14}), ("adx", {"period": 14}), ("cci", {"period": 20}),
    ("mfi", {"period": 14}), ("macd", {}), ("aroon", {"period": 25}), ("stochastic", {}),
    ("parkinson_volatility", {"period": 12}), ("garman_klass_volatility", {"period": 39}),
    ("rogers_satchell_volatility", {"period": 78})]]
def one(part):
    names = ["open", "high", "low", "close", "volume"]
    compute_features(pl.DataFrame({name: part[:, spot] for spot, name in enumerate(names)}), wanted)
race(one, len(wanted))
""",
    "pyqlib": _READ
    + """
import tempfile
from pathlib import Path
import pandas as pd, qlib
from qlib.data import D
root = Path(tempfile.mkdtemp())
longest = max(len(part) for part in parts)
stamps = pd.date_range("2000-01-01", periods=longest, freq="5min")
for folder in ("calendars", "instruments"):
    (root / folder).mkdir()
(root / "calendars" / "5min.txt").write_text("\\n".join(stamps.strftime("%Y-%m-%d %H:%M:%S")))
lines = []
for number, part in enumerate(parts):
    home = root / "features" / f"s{number:04d}"
    home.mkdir(parents=True)
    for spot, name in enumerate(["open", "high", "low", "close", "volume"]):
        np.r_[0.0, part[:, spot]].astype("<f4").tofile(home / f"{name}.5min.bin")
    lines.append(f"S{number:04d}\\t{stamps[0]}\\t{stamps[len(part) - 1]}")
(root / "instruments" / "all.txt").write_text("\\n".join(lines))
qlib.init(provider_uri=str(root), kernels=2, expression_cache=None, dataset_cache=None, logging_level=40)
wanted = ["$close/Ref($close,12)-1", "($close-Min($low,14))/(Max($high,14)-Min($low,14))",
          "EMA($close,6)/EMA($close,24)",
          "Slope(Log($close),24)", "IdxMax($high,25)-IdxMin($low,25)", "$close/Max($high,78)", "$close/Min($low,78)",
          "Corr($close/Ref($close,1),$volume,24)"]
begin = time.perf_counter()
D.features(D.instruments("all"), wanted, freq="5min")
print(json.dumps({"s": time.perf_counter() - begin, "indicators": len(wanted), "rows": len(table)}))
""",
}


def race(name: str, bars: Path) -> dict[str, float] | None:
    """Seconds, indicators, rows and values per second of a peer; None, with a word, where it cannot run."""
    python = python_of(name)
    if python is None:
        print(f"{name}: skipped, no environment (python -m benchmarks.peers {name})")
        return None
    done = subprocess.run([str(python), "-c", SCRIPTS[name], str(bars)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: skipped, it failed: {(done.stderr.splitlines() or ['?'])[-1][:200]}")
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    found["values_per_s"] = found["rows"] * found["indicators"] / found["s"]
    print(f"{name}: {found['indicators']:.0f} indicators of {found['rows']:,.0f} bars in {found['s']:.2f} s")
    return found

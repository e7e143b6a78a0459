"""In: bytes that chance made. Out: their reader took them or refused them in three parts; anything else is a fault."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from klinepred.errors import KlinepredError

Target = Callable[[bytes], None]
STAMP: Final = datetime(2026, 6, 1, 21, 0, tzinfo=UTC)


class FaultError(AssertionError):
    """Something that must never be."""


def _asked(ask: Callable[[], object]) -> None:
    """`ask` answers, or refuses with all three parts in a message that can be printed."""
    try:
        ask()
    except KlinepredError as error:
        if not (error.summary and error.expected and error.got and error.do):
            raise FaultError("a message without its parts") from error
        str(error).encode()
        if len(str(error)) > 20_000:
            raise FaultError(f"a message of {len(str(error)):,} characters") from error


def pipeline_target(folder: Path) -> Target:
    """A pipeline's TOML."""
    from klinepred.config import load_pipeline
    from klinepred.paths import Workspace

    path, space = folder / "fuzzed.toml", Workspace(folder / "space")

    def run(data: bytes) -> None:
        path.write_bytes(data)
        _asked(lambda: load_pipeline(path, workspace=space))

    return run


def override_target(folder: Path) -> Target:
    """The text behind `--set`, several of them a line each."""
    from klinepred.config import load_pipeline

    def run(data: bytes) -> None:
        words = tuple(data.decode("utf-8", errors="replace").splitlines()[:5])
        _asked(lambda: load_pipeline("demo", overrides=words))

    return run


def bundle_target(folder: Path) -> Target:
    """A bundle's table, sealed anew where it is one, so that what lies behind the checksum is reached."""
    from klinepred.model.bundle import TABLE, load_bundle, save_bundle, sealed
    from tests.model.bundles import small_bundle

    place = save_bundle(small_bundle(), folder / "bundle")

    def run(data: bytes) -> None:
        with suppress(ValueError, RecursionError):
            table = json.loads(data)
            if isinstance(table, dict):
                data = json.dumps(sealed(table)).encode()
        (place / TABLE).write_bytes(data)
        _asked(lambda: load_bundle(place))

    return run


def weights_target(folder: Path) -> Target:
    """A bundle's weights, their checksum put right."""
    from klinepred.model.bundle import TABLE, WEIGHTS, load_bundle, save_bundle, sealed
    from tests.model.bundles import small_bundle

    place = save_bundle(small_bundle(), folder / "bundle")
    table = json.loads((place / TABLE).read_bytes())

    def run(data: bytes) -> None:
        (place / WEIGHTS).write_bytes(data)
        right = {**table, "weights_sha256": hashlib.sha256(data).hexdigest()}
        (place / TABLE).write_text(json.dumps(sealed(right)))
        _asked(lambda: load_bundle(place))

    return run


def request_target(folder: Path) -> Target:
    """What a client of `klinepred serve` sends: a JSON object of bars and params."""
    import pandas as pd
    from mlflow.exceptions import MlflowException

    from klinepred.config import load_pipeline
    from klinepred.serving.answer import answer
    from tests.serving.market import random_bundle

    bundle = random_bundle(load_pipeline("demo"), {"run_id": "abc", "created": "2026-05-01T00:00:00Z"})

    def run(data: bytes) -> None:
        try:
            asked = json.loads(data)
            params = {key: value for key, value in asked["params"].items() if isinstance(value, str)}
            frame = pd.DataFrame(asked["bars"]["data"], columns=asked["bars"]["columns"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, IndexError, OverflowError):
            return  # no frame: MLflow's own readers refuse it
        try:
            answer(bundle, frame, params={"now": "2026-04-30T22:00:00Z", **params})
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE" or "expected:" not in str(error):
                raise FaultError(f"refused as {error.error_code}: {error}") from error

    return run


def bars_target(folder: Path) -> Target:
    """A file of bars: CSV, JSON, Parquet or packed, by what is in it."""
    from klinepred.bars.check import check_bars
    from klinepred.bars.clean import clean
    from klinepred.bars.supply import deliveries
    from klinepred.calendar import Clock
    from klinepred.settings import DataSettings

    clock = Clock("24/7", "regular")
    inbox = folder / "in"
    inbox.mkdir()

    def take() -> None:
        data = DataSettings(source="files", calendar="24/7", paths=(str(inbox / "BTC-USD.csv"),))
        for delivery in deliveries(data, clock, STAMP):
            cleaned = clean(delivery.frame, clock=clock, now=STAMP)
            check_bars(cleaned.bars, clock=clock)

    def run(data: bytes) -> None:
        (inbox / "BTC-USD.csv").write_bytes(data)
        _asked(take)

    return run


TARGETS: Final[dict[str, Callable[[Path], Target]]] = {
    "pipeline": pipeline_target,
    "override": override_target,
    "bundle": bundle_target,
    "weights": weights_target,
    "request": request_target,
    "bars": bars_target,
}


def right_inputs(name: str, folder: Path) -> list[bytes]:
    """Inputs of a target that are as they should be, for chance to begin from; `folder` is for scratch files."""
    return {
        "pipeline": _pipelines,
        "override": lambda _: [b"train.epochs=3\ndata.calendar=24/7", b'data.symbols=["A", "B"]', b"train.amp=true"],
        "bundle": _tables,
        "weights": _weights,
        "request": _requests,
        "bars": _bars,
    }[name](folder)


def _pipelines(_: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path("pipelines").glob("*.toml"))]


def _saved(folder: Path) -> Path:
    from klinepred.model.bundle import save_bundle
    from tests.model.bundles import small_bundle

    shutil.rmtree(folder / "right", ignore_errors=True)
    return save_bundle(small_bundle(), folder / "right")


def _tables(folder: Path) -> list[bytes]:
    from klinepred.model.bundle import TABLE

    table: dict[str, Any] = json.loads((_saved(folder) / TABLE).read_bytes())
    return [json.dumps(table).encode()]


def _weights(folder: Path) -> list[bytes]:
    from klinepred.model.bundle import WEIGHTS

    return [(_saved(folder) / WEIGHTS).read_bytes()]


def _lines(count: int) -> list[list[Any]]:
    return [
        [f"2026-04-30T{13 + step // 12:02d}:{step % 12 * 5:02d}:00Z", 10.0, 11.0, 9.5, 10.5, 100.0]
        for step in range(6, 6 + count)
    ]


def _requests(_: Path) -> list[bytes]:
    columns = ["symbol", "ts", "open", "high", "low", "close", "volume"]
    rows = [[symbol, *line] for symbol in ("SIM001", "XYZ") for line in _lines(4)]
    asked = {"bars": {"columns": columns, "data": rows}, "params": {"now": "2026-04-30T14:30:00Z"}}
    ranged = {**asked, "params": {"start": "2026-04-30T13:30:00Z", "end": "2026-04-30T14:00:00+00:00"}}
    return [json.dumps(asked).encode(), json.dumps(ranged).encode()]


def _bars(_: Path) -> list[bytes]:
    text = "ts,open,high,low,close,volume\n" + "".join(",".join(map(str, line)) + "\n" for line in _lines(5))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr(zipfile.ZipInfo("BTC-USD.csv", (2026, 1, 1, 0, 0, 0)), text)
    rows = json.dumps(
        [dict(zip(("ts", "open", "high", "low", "close", "volume"), line, strict=True)) for line in _lines(3)]
    )
    return [text.encode(), text.replace(",", ";").encode("utf-16"), packed.getvalue(), rows.encode()]

"""In: raw bars as a pandas frame. Out: what MLflow's pyfunc answers, equal to what `klinepred predict` says of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import klinepred as kp
from klinepred.model.bundle import ModelBundle
from klinepred.training.logged_model import CODE
from tests.conftest import Typed
from tests.serving.market import NOW, SYMBOLS, open_market

TEXT = ("symbol", "bar_ts", "asof", "target_ts", "target", "note", "model", "run_id")
NUMBERS = ("expected_return_bps", "p_up", "lo80_bps", "hi80_bps")


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[kp.Workspace, ModelBundle]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield open_market(tmp_path_factory.mktemp("kline été") / "№ 1")


@pytest.fixture(scope="module")
def folder(market: tuple[kp.Workspace, ModelBundle]) -> Path:
    (found,) = market[0].artifacts.glob("demo/models/*/artifacts")
    return found


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    import mlflow

    return mlflow.pyfunc.load_model(str(folder))


@pytest.fixture(scope="module")
def bars(market: tuple[kp.Workspace, ModelBundle]) -> pd.DataFrame:
    table = kp.scan_bars(market[0]).drop("calendar").collect()
    return table.with_columns(pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).to_pandas()


def predicted(typed: Typed, space: kp.Workspace, *words: str) -> pd.DataFrame:
    code, out, _ = typed("predict", "-p", "demo", "-w", str(space.root), "--format", "json", *words)
    assert code == 0
    return pd.DataFrame(json.loads(out))


def check_equal(got: pd.DataFrame, want: pd.DataFrame, *, within: float = 0.0) -> None:
    assert list(got.columns) == list(want.columns)
    for name in (*TEXT, "stale", "in_training"):
        assert got[name].tolist() == want[name].tolist(), name
    for name in NUMBERS:
        pair = [frame[name].astype(float).tolist() for frame in (got, want)]
        assert pair[0] == pytest.approx(pair[1], rel=within, abs=within, nan_ok=True), name


def test_the_logged_model_answers_as_klinepred_predict(
    market: tuple[kp.Workspace, ModelBundle], model: Any, bars: pd.DataFrame, typed: Typed
) -> None:
    want = predicted(typed, market[0], "--now", NOW)
    assert want["symbol"].tolist() == list(SYMBOLS)
    shuffled = bars.sample(frac=1.0, random_state=3)
    check_equal(model.predict(shuffled, params={"now": NOW}), want)
    span = {"now": NOW, "start": "2026-04-30T13:30:00Z", "end": "2026-04-30T15:00:00Z"}
    replay = predicted(typed, market[0], "--start", span["start"], "--end", span["end"], "--now", NOW)
    assert len(replay) == 18 * len(SYMBOLS)
    check_equal(model.predict(bars, params=span), replay)


def test_mlflow_models_serve_answers_as_klinepred_predict(
    market: tuple[kp.Workspace, ModelBundle], model: Any, bars: pd.DataFrame, typed: Typed
) -> None:
    """What MLflow's own scoring server does with a request, without the server around it."""
    from mlflow.pyfunc import scoring_server

    table = json.loads(bars.to_json(orient="split", index=False, double_precision=15))
    body = json.dumps({"dataframe_split": table, "params": {"now": NOW}})
    invoked: Any = scoring_server.invocations
    told = invoked(body, "application/json", model, model.metadata.get_input_schema())
    assert told.status == 200
    got = pd.DataFrame(json.loads(told.response)["predictions"])
    check_equal(got, predicted(typed, market[0], "--now", NOW), within=1e-9)


def test_it_answers_the_same_from_a_moved_workspace_by_its_alias(
    market: tuple[kp.Workspace, ModelBundle], bars: pd.DataFrame, model: Any, tmp_path: Path
) -> None:
    moved = kp.Workspace(tmp_path / "elsewhere % #2")
    shutil.copytree(market[0].root, moved.root)
    bars.to_json(tmp_path / "bars.json", orient="split")
    script = f"""
import mlflow, pandas, sys
from klinepred.paths import Workspace
from klinepred.training.registry import crown
space = Workspace(sys.argv[1])
assert crown(space, pipeline="demo", run_id=sys.argv[2])
mlflow.set_tracking_uri(space.tracking_uri)
model = mlflow.pyfunc.load_model("models:/klinepred-demo@champion")
frame = pandas.read_json(sys.argv[3], orient="split", convert_dates=False)
print(model.predict(frame, params={{"now": "{NOW}"}}).to_json(orient="records", double_precision=15))
"""
    words = [sys.executable, "-c", script, str(moved.root), market[1].run_id, str(tmp_path / "bars.json")]
    hidden = market[0].artifacts.with_name("hidden")
    market[0].artifacts.rename(hidden)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=250)
    finally:
        hidden.rename(market[0].artifacts)
    assert done.returncode == 0, done.stderr
    # bars and answers have been through JSON
    check_equal(pd.DataFrame(json.loads(done.stdout)), model.predict(bars, params={"now": NOW}), within=1e-9)


def test_the_model_is_code_and_a_bundle_and_holds_no_pickle(folder: Path, market: Any) -> None:
    from mlflow.models import Model

    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    bundle = f"artifacts/{market[1].name}"
    assert {CODE.name, "MLmodel", f"{bundle}/bundle.json", f"{bundle}/weights.safetensors"} <= files
    assert not [name for name in files if name.endswith((".pkl", ".pt", ".pth", ".bin"))]
    table = Model.load(str(folder))
    flavor = table.flavors["python_function"]
    assert Path(flavor["model_code_path"]).name == CODE.name
    assert "python_model" not in flavor  # that is where a pickle would be named
    assert table.run_id == market[1].run_id
    assert (folder / CODE.name).read_text() == CODE.read_text()
    requirements = (folder / "requirements.txt").read_text().split()
    assert f"klinepred=={kp.__version__}" in requirements
    assert sum(path.stat().st_size for path in folder.rglob("*.safetensors")) == sum(
        path.stat().st_size for path in market[0].root.glob("mlruns/**/*.safetensors")
    )  # the weights lie there once


def test_the_input_example_can_be_predicted(folder: Path, model: Any) -> None:
    example = model.input_example
    assert example.columns.tolist() == ["symbol", "ts", "open", "high", "low", "close", "volume"]
    (row,) = model.predict(example).to_dict("records")
    assert row["symbol"] == SYMBOLS[0]
    assert row["stale"]
    assert "2 of 3 universe symbols absent" in row["note"]


def test_calendars_may_be_given_and_volumes_may_be_whole_numbers(model: Any, bars: pd.DataFrame) -> None:
    plain = model.predict(bars, params={"now": NOW})
    whole = bars.assign(volume=bars["volume"].round().astype("int64"))
    assert len(model.predict(whole, params={"now": NOW})) == len(SYMBOLS)
    other = bars.assign(symbol=bars["symbol"].where(bars["symbol"] != "SIM003", "OTHER"), calendar="XNYS")
    got = model.predict(other, params={"now": NOW})
    assert got["symbol"].tolist() == ["OTHER", "SIM001", "SIM002"]
    assert got["in_training"].tolist() == [False, True, True]
    assert not plain["stale"].any()


Change = Callable[[pd.DataFrame], pd.DataFrame]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.assign(close=f["close"].where(f.index != 5)), "close is missing"),
        (lambda f: f.drop(columns="close"), "close"),
        (lambda f: f.drop(columns="volume"), "volume"),
        (lambda f: f.assign(volume="many"), "numbers in volume"),
        (lambda f: f.assign(ts=f["ts"].str.rstrip("Z")), "ISO 8601 text with Z or an offset"),
        (lambda f: f.assign(ts="soon"), "'soon' in row 1, and"),
        (lambda f: f.assign(symbol="NEW"), "add a column calendar"),
        (lambda f: f.assign(symbol=f["symbol"].where(f.index != 5, "")), "'' in row 6"),
        (lambda f: f.assign(calendar="NOWHERE"), "NOWHERE"),
        (lambda f: pd.concat([f, f]), "twice"),
        (lambda f: f.head(0), "none"),
        (lambda f: f.head(100), "too little history"),
        (lambda f: f.assign(high=0.5 * f["low"]), "high is below"),
        (lambda f: f.assign(ts=f["ts"].str.replace(":00Z", ":07Z")), "grid"),
    ],
)
def test_what_are_no_bars_is_refused_with_what_to_do(model: Any, bars: pd.DataFrame, change: Change, said: str) -> None:
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException) as raised:
        model.predict(change(bars), params={"now": NOW})
    assert said in str(raised.value)
    assert raised.value.error_code in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INTERNAL_ERROR")


@pytest.mark.parametrize(("params", "said"), [({"now": "noon"}, "noon"), ({"end": NOW}, "add start")])
def test_odd_params_are_refused(model: Any, bars: pd.DataFrame, params: dict[str, str], said: str) -> None:
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException, match=said):
        model.predict(bars, params=params)


def test_stamps_may_have_offsets_blanks_or_no_seconds(model: Any, bars: pd.DataFrame) -> None:
    want = model.predict(bars, params={"now": NOW})
    stamps = pd.to_datetime(bars["ts"])
    for text in (
        stamps.astype(str),
        stamps.dt.tz_convert("America/New_York").astype(str),
        stamps.dt.strftime("%Y-%m-%dT%H:%MZ"),
    ):
        check_equal(model.predict(bars.assign(ts=text), params={"now": NOW}), want)

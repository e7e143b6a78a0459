"""In: bundles with golden bars, features whose code was changed. Out: a refusal with both numbers, or none."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import klinepred as kp
from klinepred.bars.check import check_bars
from klinepred.errors import ModelError
from klinepred.features import custom
from klinepred.features.spec import FeatureSet
from klinepred.model import golden_bars
from klinepred.model.bundle import TABLE, ModelBundle, features_of, load_bundle, save_bundle, sealed
from klinepred.model.golden_bars import FILE, GoldenBars, here, make_golden_bars
from tests.asked import asked_bundle

CLOCKS = {"AAA": "XNYS", "BBB": "XNYS", "CCC": "24/7"}
UNTIL = date(2026, 5, 8)


@pytest.fixture(scope="module")
def bundle() -> ModelBundle:
    return replace(asked_bundle(CLOCKS), golden_bars=make_golden_bars(kp.F50, clocks=CLOCKS, until=UNTIL))


def made(bundle: ModelBundle) -> GoldenBars:
    assert bundle.golden_bars is not None
    return bundle.golden_bars


@pytest.fixture
def _other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a version of klinepred whose source differs."""
    monkeypatch.setattr(golden_bars, "here", lambda: {**here(), "code": "another"})


def changed(monkeypatch: pytest.MonkeyPatch, name: str, by: float) -> None:
    """Another expression under the same formula and revision."""
    features = tuple(
        replace(one, expression=one.expression * by) if one.name == name else one for one in kp.F50.features
    )
    other = FeatureSet("f50", features)
    assert other.fingerprint == kp.F50.fingerprint
    monkeypatch.setattr(custom, "FEATURE_SETS", {"f50": other})


def test_golden_bars_are_bars_by_the_commonest_clock_and_every_feature_has_a_value(bundle: ModelBundle) -> None:
    golden = made(bundle)
    frame = golden.bars()
    assert check_bars(frame).collect().height == frame.height
    assert frame["calendar"].unique().to_list() == ["XNYS"]
    assert frame["ts"].max().date() == UNTIL  # type: ignore[union-attr]
    assert golden.features_MF.shape == (6 * golden_bars.ROWS, 50)
    assert np.isfinite(golden.features_MF[: 4 * golden_bars.ROWS]).mean() > 0.95  # of the symbols that lack nothing
    whole = kp.build_features(frame, universe=golden_bars.SYMBOLS).frame
    want = whole.select(kp.F50.names)[golden.at_M].to_numpy()
    np.testing.assert_array_equal(golden.features_MF, np.nan_to_num(want, nan=np.nan).astype(np.float32))


def test_they_come_back_from_the_folder_as_they_were(bundle: ModelBundle, tmp_path: Path) -> None:
    back = made(load_bundle(save_bundle(bundle, tmp_path / "m")))
    for name in ("ts_B", "values_SBV", "at_M", "features_MF"):
        np.testing.assert_array_equal(getattr(back, name), getattr(made(bundle), name))
    assert dict(back.made) == dict(made(bundle).made) == {"clock": "XNYS", **here()}


@pytest.mark.usefixtures("_other_code")
def test_features_that_are_the_same_pass_in_other_code(bundle: ModelBundle, tmp_path: Path) -> None:
    assert features_of(load_bundle(save_bundle(bundle, tmp_path / "m"))).fingerprint == bundle.fingerprint


@pytest.mark.usefixtures("_other_code")
@pytest.mark.parametrize("name", ["price__return_1", "volume__relative_volume", "cross__rank_1"])
def test_a_feature_that_changed_under_its_text_is_refused_with_both_numbers(
    bundle: ModelBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    name = name if name in kp.F50.names else next(one for one in kp.F50.names if one.startswith(name.split("__")[0]))
    column = made(bundle).features_MF[:, kp.F50.names.index(name)]
    first = column[np.flatnonzero(np.abs(np.nan_to_num(column)) > 2e-4)[0]]
    changed(monkeypatch, name, 2.0)
    with pytest.raises(ModelError, match="not those it was trained on") as caught:
        features_of(load_bundle(save_bundle(bundle, tmp_path / "m")))
    assert name in caught.value.expected + caught.value.got
    if name == "price__return_1":
        assert f"{first:.7g}" in caught.value.expected
        assert float(caught.value.got.split(",")[0].split(";")[0]) == pytest.approx(2.0 * first, rel=1e-5)
    assert "code another" in caught.value.got


@pytest.mark.usefixtures("_other_code")
def test_a_difference_of_rounding_passes(bundle: ModelBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, "price__return_1", 1.0 + 1e-5)
    features_of(load_bundle(save_bundle(bundle, tmp_path / "m")))


def test_in_the_same_code_nothing_is_computed(
    bundle: ModelBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden_bars, "build_features", lambda *_, **__: pytest.fail("computed"))
    features_of(load_bundle(save_bundle(bundle, tmp_path / "m")))


def test_any_change_of_the_source_of_features_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(golden_bars.__file__).parents[1]
    for name in ("features", "formula"):
        shutil.copytree(package / name, tmp_path / name)
    for name in ("calendar.py", "sessions.py"):
        shutil.copyfile(package / name, tmp_path / name)
    monkeypatch.setattr(golden_bars, "_PACKAGE", tmp_path)
    assert here.__wrapped__()["code"] == here()["code"]
    path = tmp_path / "features" / "price.py"
    path.write_text(path.read_text().replace("(O.log()", "2 * (O.log()", 1))
    assert here.__wrapped__()["code"] != here()["code"]


def test_a_bundle_of_before_golden_bars_loads(bundle: ModelBundle, tmp_path: Path) -> None:
    folder = save_bundle(replace(bundle, golden_bars=None), tmp_path / "m")
    table = json.loads((folder / TABLE).read_text())
    del table["golden_bars"]
    (folder / TABLE).write_text(json.dumps(sealed({**table, "klinepred_bundle": 3})))
    back = load_bundle(folder)
    assert back.golden_bars is None
    assert features_of(back).fingerprint == bundle.fingerprint


def test_golden_bars_that_are_gone_or_changed_are_refused(bundle: ModelBundle, tmp_path: Path) -> None:
    folder = save_bundle(bundle, tmp_path / "m")
    payload = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(payload[:-4] + b"\0\0\x80?")
    with pytest.raises(ModelError, match="checksum"):
        load_bundle(folder)
    (folder / FILE).unlink()
    with pytest.raises(ModelError, match=f"no readable {FILE}"):
        load_bundle(folder)


def test_a_calendar_that_does_not_reach_back_costs_the_golden_bars_alone(caplog: pytest.LogCaptureFixture) -> None:
    assert make_golden_bars(kp.F50, clocks={"AAA": "XNYS"}, until=date(1890, 1, 2)) is None
    assert "no golden bars" in caplog.text


def test_bars_of_nobody_are_in_them(bundle: ModelBundle) -> None:
    """The last symbol lacks bars, the one before has some without volume or without a move."""
    frame = made(bundle).bars()
    counts = dict(frame.group_by("symbol").len().iter_rows())
    assert counts["GOLD5"] < counts["GOLD0"]
    assert frame.filter(pl.col("volume") == 0.0)["symbol"].unique().to_list() == ["GOLD4"]

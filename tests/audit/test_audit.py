"""In: a store, a dataset about to be trained on. Out: inputs that the bars do not give are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klinepred as kp
from klinepred.audit import audit
from klinepred.audit.check import Certificate, Check
from klinepred.cli import main
from klinepred.dataset.make import Dataset
from klinepred.pipeline import build_dataset

WORDS = (
    "--set=data.simulate.symbols=5",
    "--set=data.simulate.start=2026-02-02",
    "--set=data.simulate.end=2026-03-31",
)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> kp.Workspace:
    folder = tmp_path_factory.mktemp("store")
    assert main(["ingest", "-p", "demo", "-w", str(folder), "-q", *WORDS, "--now", "2026-03-31T22:00:00Z"]) == 0
    return kp.Workspace(folder)


@pytest.fixture(scope="module")
def data(space: kp.Workspace) -> Dataset:
    return build_dataset(kp.load_pipeline("demo", workspace=space), space)


@pytest.fixture(autouse=True)
def _rest_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Certificate((Check("the rest", "feature", True, ""),))
    monkeypatch.setattr(audit, "audit_stored", lambda *_, **__: fine)


def test_inputs_as_the_bars_give_them_pass(space: kp.Workspace, data: Dataset) -> None:
    certificate = audit.audit_before_training(space, data)
    assert [check for check in certificate.checks if not check.passed] == []
    assert certificate.checks[-1].detail.endswith("x 50 features")


def test_an_input_that_is_not_what_the_bars_give_is_found(space: kp.Workspace, data: Dataset) -> None:
    x_NF = data.x_NF.copy()
    x_NF[77, 3] += 0.5
    (fault,) = audit.audit_before_training(space, replace(data, x_NF=x_NF)).failed
    symbol, ts = data.rows.select("symbol", "ts").row(77)
    first = f"{data.features.names[3]}: 1 rows, first {symbol} {ts:%Y-%m-%dT%H:%MZ}"
    assert fault.detail == f"{first}, as kept in data/features of the workspace, which may be deleted at any time"


def test_inputs_that_differ_by_less_than_a_lookback_promises_pass(space: kp.Workspace, data: Dataset) -> None:
    """Values after an increment are computed from a stretch of history: the last digit may be another."""
    x_NF = np.nextafter(data.x_NF, np.float32(9.0), dtype=np.float32)
    assert audit.audit_before_training(space, replace(data, x_NF=x_NF)).passed


def test_an_audit_that_breaks_off_has_failed(
    space: kp.Workspace, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Certificate:
        raise kp.KlinepredError("feature x", expected="numbers", got="none", do="mend it")

    monkeypatch.setattr(audit, "audit_stored", broken)
    certificate = audit.audit_before_training(space, data)
    assert not certificate.passed
    assert "feature x: expected numbers, got none" in certificate.checks[0].detail

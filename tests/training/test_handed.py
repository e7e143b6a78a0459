"""In: two machines' environments. Out: the second records where the first does, and gets nothing else of it."""

from __future__ import annotations

import os

import pytest

from klinepred.training.handed import put_up, record_settings


def test_settings_of_the_record_are_handed_over_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    monkeypatch.setenv("MLFLOW_RUN_ID", "another's")
    assert record_settings() == {}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://runs")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "sesame")
    handed = record_settings()
    assert handed == {"MLFLOW_TRACKING_URI": "https://runs", "MLFLOW_TRACKING_TOKEN": "sesame"}

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://elsewhere")
    monkeypatch.delenv("MLFLOW_TRACKING_TOKEN")
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", "/its/own.pem")
    put_up(handed)
    assert record_settings() == {**handed, "MLFLOW_TRACKING_SERVER_CERT_PATH": "/its/own.pem"}
    put_up({})  # who names no store records in the workspace
    assert "MLFLOW_TRACKING_URI" not in os.environ

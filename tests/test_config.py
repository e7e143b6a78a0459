"""In: pipelines, good and mistyped. Out: frozen settings, or one message naming the key and the nearest valid one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from klinepred.config import load_pipeline, parse_pipeline, pipeline_names
from klinepred.errors import ConfigError
from klinepred.paths import Workspace
from klinepred.settings import ModelSettings, Pipeline
from klinepred.training.resolved import pipeline_toml

SHIPPED = ["amp-case-study", "crypto-5m", "demo", "us-equities-5m"]


def fault(*overrides: str, name: str = "demo") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_pipeline(name, overrides=overrides)
    return caught.value


def test_the_four_pipelines_are_shipped() -> None:
    assert pipeline_names() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_pipeline_loads_without_a_warning(name: str) -> None:
    run = load_pipeline(name)
    assert run.name == name
    assert run.description
    assert run.ignored() == []


@pytest.mark.parametrize("name", SHIPPED)
def test_resolved_configuration_reads_back_equal(name: str) -> None:
    run = load_pipeline(
        name, overrides=["dataset.split.train_end=2026-03-01", "dataset.split.validation_end=2026-04-01"]
    )
    assert parse_pipeline(run.model_dump(mode="json"), where="run") == run


def test_resolved_configuration_needs_no_preset_file(tmp_path: Path) -> None:
    own = Workspace(tmp_path)
    own.presets.mkdir(parents=True)
    (own.presets / "mine.toml").write_text("hidden = 17\n")
    run = load_pipeline("demo", overrides=["model.preset=mine"], workspace=own)
    assert run.model.hidden == 17
    assert parse_pipeline(run.model_dump(mode="json"), where="bundle") == run


def test_amp_case_study_has_the_values_of_the_case_study() -> None:
    run = load_pipeline("amp-case-study")
    assert (run.model.hidden, run.model.layers) == (256, 3)
    assert (run.train.lr, run.train.weight_decay, run.train.epochs) == (1e-4, 1e-5, 100)
    assert (run.train.init_scale, run.train.growth_interval) == (2.0**16, 2000)
    assert (run.train.clip, run.train.clip_norm, run.train.amp) == ("norm", 1.0, True)


def test_default_pipeline_is_some_thirty_us_names_from_yahoo() -> None:
    run = load_pipeline()
    assert (run.name, run.data.source, run.data.calendar) == ("us-equities-5m", "yahoo", "XNYS")
    assert len(set(run.data.symbols)) == len(run.data.symbols) == 30
    assert {"SPY", "QQQ", "AAPL"} <= set(run.data.symbols)


@pytest.mark.parametrize(
    ("override", "key", "hint"),
    [
        ("train.epoch=3", "train.epoch", "train.epochs"),
        ("epochs=3", "epochs", "train.epochs"),
        ("trian.epochs=3", "trian", "train"),
        ("train.horizon=2", "train.horizon", "dataset.horizon"),
        ("dataset.split.embrago=1", "dataset.split.embrago", "dataset.split.embargo"),
        ("model.hiden=8", "model.hiden", "model.hidden"),
    ],
)
def test_unknown_key_is_named_with_the_nearest_valid_one(override: str, key: str, hint: str) -> None:
    error = fault(override)
    assert error.summary == f"pipeline demo: unknown key {key}"
    assert error.do == f"did you mean {hint}?"


def test_unknown_key_like_no_other_gets_no_false_hint() -> None:
    assert "did you mean" not in fault("zzz=1").do


def test_two_faults_are_both_named() -> None:
    error = fault("train.epochs=0", "train.batch=0")
    assert "train.epochs" in error.summary
    assert "train.batch" in error.do


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.epochs=many", "a whole number"),
        ("train.epochs=true", "a whole number"),
        ("train.epochs=3.5", "a whole number"),
        ("train.amp=yes", "true or false"),
        ("train.amp=1", "true or false"),
        ('train.lr="0.1"', "a number"),
        ("train.lr=nan", "finite"),
        ("data.symbols=AAPL,MSFT", 'a list, such as ["AAPL", "MSFT"]'),
        ("data.symbols=[1, 2]", "text in quotes"),
        ("data.start=20260102", "a date"),
        ("data.start=2026-13-01", "a date"),
        ("data=3", "a section"),
        ("model=3", "a section"),
        ("train.precision=fp8", "'fp16'"),
        ("train.epochs=0", "greater than or equal to 1"),
        ("name=a b", "letters, digits"),
    ],
)
def test_value_of_the_wrong_kind_is_told_in_words_of_toml(override: str, expected: str) -> None:
    error = fault(override)
    assert override.partition("=")[0] in error.summary
    assert expected in error.expected
    assert error.got


def test_settings_are_frozen() -> None:
    run = load_pipeline("demo")
    with pytest.raises(ValidationError):
        run.train.epochs = 3  # type: ignore[misc]


def test_own_pipeline_and_preset_win_over_the_shipped(tmp_path: Path) -> None:
    own = Workspace(tmp_path)
    own.pipelines.mkdir()
    own.presets.mkdir(parents=True)
    (own.pipelines / "demo.toml").write_text('[model]\npreset = "lstm-small"\n')
    (own.presets / "lstm-small.toml").write_text("hidden = 9\nlayers = 1\n")
    assert load_pipeline("demo", workspace=own).model == ModelSettings(preset="lstm-small", hidden=9, layers=1)
    assert load_pipeline("demo").model.hidden == 256


def test_key_in_the_pipeline_wins_over_the_preset() -> None:
    assert load_pipeline("demo", overrides=["model.hidden=32"]).model.hidden == 32


def test_pipeline_by_path_takes_its_name_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[train]\nepochs = 2\n")
    run = load_pipeline(tmp_path / "mine.toml")
    assert (run.name, run.train.epochs) == ("mine", 2)


def test_file_saved_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf[train]\r\nepochs = 2\r\n")
    assert load_pipeline(tmp_path / "mine.toml").train.epochs == 2


@pytest.mark.parametrize("content", [b"epochs = = 3", b"\xff\xfe\x00", b"x = " + b"[" * 5000])
def test_file_that_is_no_toml_is_a_config_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(content)
    assert "TOML" in fault(name=str(tmp_path / "mine.toml")).expected


def test_unknown_pipeline_names_the_nearest() -> None:
    error = fault(name="us-equity-5m")
    assert error.do == "use -p us-equities-5m"
    assert error.exit_code == 2


@pytest.mark.parametrize("name", ["nothing/here.toml", "../demo", "", "demo\0"])
def test_pipeline_that_is_not_there_is_a_usage_error(name: str) -> None:
    assert fault(name=name).exit_code == 2


@pytest.mark.parametrize("preset", ["nope", "../presets/lstm-small", "", "/etc/passwd"])
def test_unknown_preset_names_what_there_is(preset: str) -> None:
    assert fault(f"model.preset={preset!r}").expected == "one of: lstm-3x256, lstm-50m, lstm-small"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["dataset.cut=window", "dataset.burn_in=3"], "dataset.burn_in"),
        (["dataset.window=20"], "dataset.window"),
        (["train.clip_value=1.0"], "train.clip_value"),
        (["train.clip=value", "train.clip_norm=1.0"], "train.clip_norm"),
        (["train.schedule=constant", "train.warmup=0.1"], "train.warmup"),
        (["train.amp=true", "train.precision=fp32"], "train.amp"),
        (["train.init_scale=1024.0"], "train.init_scale"),
        (["train.amp=true", "train.precision=bf16", "train.growth_interval=10"], "train.growth_interval"),
        (["data.symbols=['A']"], "data.symbols"),
        (["data.source=yahoo"], "data.simulate"),
        (["data.tz=UTC"], "data.tz"),
    ],
)
def test_setting_without_effect_is_warned_of(overrides: list[str], key: str) -> None:
    lines = load_pipeline("demo", overrides=overrides).ignored()
    assert [line for line in lines if line.startswith(f"{key} is ignored")]


@pytest.mark.parametrize(
    ("overrides", "expected", "do"),
    [
        (["model.preset=lstm-50m"], "dataset.window = 78", "--set dataset.cut=window --set dataset.window=78"),
        (
            ["model.preset=lstm-50m", "dataset.cut=session", "dataset.burn_in=78"],
            "dataset.window = 78",
            "--set dataset.cut=window --set dataset.window=78",
        ),
        (["model.preset=lstm-50m", "dataset.cut=window", "dataset.window=64"], "dataset.window = 78", "window=78"),
        (["train.loss=quantile"], "a network with quantiles", "model.quantiles="),
        (["model.quantiles=[0.1, 0.9]"], 'train.loss = "quantile"', "--set train.loss=quantile"),
        (["model.quantiles=[0.1, 0.9]", "train.loss=huber"], 'train.loss = "quantile"', "--set train.loss=quantile"),
        (["model.quantiles=[0.9, 0.1]", "train.loss=quantile"], "quantiles must rise", "change the value"),
        (["model.quantiles=[0.5, 0.5]", "train.loss=quantile"], "quantiles must rise", "change the value"),
        (["model.quantiles=[0.0, 0.5]", "train.loss=quantile"], "greater than 0", "change the value"),
        (["model.quantiles=[0.5, 1.0]", "train.loss=quantile"], "less than 1", "change the value"),
    ],
)
def test_network_cut_and_loss_that_do_not_fit_are_refused(overrides: list[str], expected: str, do: str) -> None:
    caught = fault(*overrides)
    assert expected in caught.expected
    assert do in caught.do
    assert caught.got


@pytest.mark.parametrize(
    "overrides",
    [
        ["dataset.split.train=0.9"],
        ["dataset.split.train_end=2026-03-01"],
        ["dataset.split.train_end=2026-03-02", "dataset.split.validation_end=2026-03-01"],
        ["data.start=2026-03-02", "data.end=2026-03-01"],
        ["data.simulate.start=2027-01-04"],
    ],
)
def test_values_that_do_not_fit_together_are_refused(overrides: list[str]) -> None:
    assert fault(*overrides).do.startswith("change the value")


def test_every_setting_has_a_default() -> None:
    assert Pipeline(name="x").train.epochs >= 1


def test_features_in_sql_are_read_with_the_file_and_kept_in_order(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[features.custom]\nz__b = "high - low"\na__c = "LAG(close, 2)"\n')
    run = load_pipeline(file, overrides=["features.custom.m__d=CASE WHEN bar = 1 THEN close END"])
    assert list(run.features.custom.items()) == [
        ("z__b", "high - low"),
        ("a__c", "LAG(close, 2)"),
        ("m__d", "CASE WHEN bar = 1 THEN close END"),
    ]
    assert parse_pipeline(json.loads(run.model_dump_json()), where="again") == run
    assert parse_pipeline(tomllib.loads(pipeline_toml(run)), where="again") == run


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("features.custom.a__b=LEAD(close, 1)", "LEAD(close, 1)"),
        ("features.custom.b=close", "'b'"),
        ("features.custom.price__b=close", "built in"),
        ("features.custom.a__b=", "no expressions"),
        ("features.custom.a__b=3", "3"),
    ],
)
def test_a_feature_that_may_not_be_is_refused_with_its_key(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=r"features\.custom") as caught:
        load_pipeline("demo", overrides=[override])
    assert told in str(caught.value)
    assert "pipeline demo" in caught.value.summary

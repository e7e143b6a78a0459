"""In: an evaluation. Out: a report that stands alone and escapes everything."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from klinepred.errors import UsageError
from klinepred.evaluation.background import Background, time_line
from klinepred.evaluation.baselines import Baseline
from klinepred.evaluation.importance import Importance
from klinepred.evaluation.intervals import score_intervals
from klinepred.evaluation.report import render_report, write_report
from klinepred.evaluation.result import Evaluation
from klinepred.evaluation.verdict import judge
from tests.evaluation.samples import panel

HOSTILE = "</script><script>alert(1)</script>"


def background(**tags: str) -> Background:
    """A run in fp16 over a hundred days, one symbol with holes."""
    spans = [("train", date(2026, 1, 2), date(2026, 3, 1)), ("validation", date(2026, 3, 2), date(2026, 3, 15))]
    spans += [("calibration", date(2026, 3, 16), date(2026, 3, 22)), ("test", date(2026, 3, 23), date(2026, 4, 11))]
    counts = {"sessions": 10, "labelled": 1000, "purged": 5, "embargoed": 0}
    parts = pl.DataFrame([{"part": name, "first": first, "last": last, **counts} for name, first, last in spans])
    numbers = {"expected": 1000, "missing": 12, "gaps": 3, "zero_volume": 4, "jumps": 1, "quarantined": 2}
    stamp = datetime(2026, 1, 2, 14, 30, tzinfo=UTC)
    return Background(
        config={"name": "demo", "train": {"lr": 1e-3}},
        provenance={"torch": "2.13.0", "device": "cpu"},
        history={
            **{name: [(1, 1.0), (2, 1.01)] for name in ("train_loss", "val_loss", "val_ic", "val_rank_ic")},
            "gradient/norm": [(1, 0.5), (2, float("inf"))],
            "gradient/norm_clipped": [(1, 0.5), (2, 1.0)],
            "amp/loss_scale": [(1, 65536.0), (2, 32768.0)],
            "amp/skipped_steps": [(1, 0.0), (2, 2.0)],
        },
        tags={"precision": "fp16", "precision_reason": "asked for", "device": "a card", **tags},
        parts=parts,
        quality=pl.DataFrame([{"symbol": "S00", "first_ts": stamp, "last_ts": stamp, **numbers}]),
        remarks=("something to mind",),
    )


def _evaluation(*, name: str = "demo-1", symbol: str = "S00") -> Evaluation:
    sample = panel(1, ic=0.1)
    sample = replace(sample, symbols=(symbol, *sample.symbols[1:]))
    wide = np.full(sample.rows, 1.3)
    intervals = score_intervals(sample, lo_M=-wide, hi_M=wide, up_M=0.5 + 0.01 * sample.pred_M)
    baselines = [Baseline("zero", np.zeros(sample.rows), {}, {}), Baseline("ridge", -sample.pred_M, {"p": 0.1}, {})]
    return judge(sample, baselines, intervals=intervals, name=name)


class Reader(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._skip = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._skip = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._skip = False

    def handle_data(self, data: str) -> None:
        if not self._skip:
            self.text += data


def test_the_verdict_comes_first_and_every_part_is_there() -> None:
    evaluation = _evaluation()
    page = Reader(
        render_report(
            evaluation,
            background=background(),
            weights=(Importance("price__return_1", 0.02, 0.01), Importance("trend__rsi_14", -0.001, 0.0)),
        )
    )
    words = " ".join(page.text.split())
    parts = (
        "EDGE",
        "Beside naive baselines",
        "By kind of step",
        "both kinds of error",
        "Data",
        "Quality of the stored",
        "Training",
        "flight record",
        "Intervals and prob",
        "Over time",
        "Money",
        "By symbol",
        "Features by import",
    )
    order = [words.index(part) for part in (*parts, "How it was made", "Versions that evaluated", "Configuration")]
    assert order == sorted(order)
    for part in ("ridge", "S07", "2.13.0", '"lr": 0.001', "survivors", "price__return_1", "python 3."):
        assert part in words
    assert "Trained in fp16 on a card: asked for. 2 optimiser steps were skipped" in words
    ids = {attrs.get("id") for _, attrs in page.tags}
    plots = {f"plot-{name}" for name in ("ic", "profit", "reliability", "loss", "skill", "norms", "scale")}
    assert plots | {"line", "importance"} <= ids


def test_the_parts_lie_on_the_time_line_where_their_days_are() -> None:
    line = time_line(background().parts)
    assert line is not None
    assert [part.name for part in line.stretches] == ["train", "validation", "calibration", "test"]
    train, validation, _, test = line.stretches
    assert train.left == 0.0
    assert train.width == pytest.approx(100 * 59 / 100)  # 2 January to 1 March of 100 days
    assert validation.left == pytest.approx(100 * 59 / 100)
    assert test.left + test.width == pytest.approx(100.0)
    assert line.ticks[0][0] == pytest.approx(100 * 30 / 100)
    assert [month for _, month in line.ticks] == ["2026-02", "2026-03", "2026-04"]
    page = Reader(render_report(_evaluation(), background=background()))
    drawn = [attrs for tag, attrs in page.tags if tag == "div" and "left:" in (attrs.get("style") or "")]
    assert [attrs["class"] for attrs in drawn] == ["train", "validation", "calibration", "test"]
    assert drawn[0]["style"] == "left:0.0%;width:59.0%"
    assert time_line(None) is None


def test_a_run_whose_loss_was_never_scaled_says_so_instead_of_drawing_a_line_of_ones() -> None:
    history = {"gradient/norm": [(1, 0.5)], "amp/loss_scale": [(1, 1.0)], "amp/skipped_steps": [(1, 0.0)]}
    page = Reader(render_report(_evaluation(), background=Background(history=history, tags={"precision": "fp32"})))
    assert "plot-scale" not in {attrs.get("id") for _, attrs in page.tags}
    assert "No loss was scaled" in page.text


def test_nothing_is_loaded_from_elsewhere() -> None:
    page = Reader(render_report(_evaluation()))
    for tag, attrs in page.tags:
        assert tag not in ("link", "img", "iframe")
        assert not {"src", "href", "srcset", "action"} & set(attrs)
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert sum(tag == "script" for tag, _ in page.tags) == 2


def test_hostile_names_are_text_and_never_markup() -> None:
    plain = Reader(render_report(_evaluation()))
    known = background(precision=HOSTILE, precision_reason=HOSTILE, device=HOSTILE, precision_fallback=HOSTILE)
    assert known.quality is not None
    evil = replace(
        known,
        config={"name": HOSTILE, HOSTILE: [HOSTILE]},
        provenance={HOSTILE: HOSTILE},
        quality=known.quality.with_columns(symbol=pl.lit(HOSTILE)),
        remarks=(HOSTILE,),
    )
    hostile = Reader(
        render_report(
            _evaluation(name=HOSTILE, symbol=HOSTILE), background=evil, weights=(Importance(HOSTILE, 0.1, 0.1),)
        )
    )
    assert sum(tag == "script" for tag, _ in hostile.tags) == sum(tag == "script" for tag, _ in plain.tags)
    assert hostile.text.count(HOSTILE) >= 12


def test_undefined_numbers_are_a_dash() -> None:
    sample = panel(2)
    page = Reader(render_report(judge(sample.with_forecast(np.zeros(sample.rows)))))
    assert "–" in page.text
    assert not re.search(r"\bnan\b", page.text, flags=re.IGNORECASE)


def test_an_empty_test_part_still_makes_a_report(tmp_path: Path) -> None:
    sample = panel(3)
    none = np.zeros(sample.rows, dtype=bool)
    arrays: dict[str, Any] = {
        name: value[none] for name, value in vars(sample).items() if isinstance(value, np.ndarray)
    }
    empty = replace(sample, **arrays, sessions=(), symbols=(), months=())
    path = write_report(judge(empty), tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    assert "NOT ENOUGH DATA" in text
    assert len(text) < 20_000  # no plots, so no plotting library


def test_the_same_evaluation_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = (write_report(_evaluation(), tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert one == two


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"report\.html"):
        write_report(_evaluation(), tmp_path / "file" / "report.html")

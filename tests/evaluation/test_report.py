"""The report stands alone and escapes everything."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klinepred.errors import UsageError
from klinepred.evaluation.baselines import Baseline
from klinepred.evaluation.importance import Importance
from klinepred.evaluation.intervals import score_intervals
from klinepred.evaluation.report import render_report, write_report
from klinepred.evaluation.result import Evaluation
from klinepred.evaluation.verdict import judge
from tests.evaluation.samples import panel

HOSTILE = "</script><script>alert(1)</script>"


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
            config={"name": "demo", "train": {"lr": 1e-3}},
            provenance={"torch": "2.13.0", "device": "cpu"},
            history={"train_loss": [(1, 1.0)], "val_loss": [(1, 1.01)]},
            weights=(Importance("price__return_1", 0.02, 0.01), Importance("trend__rsi_14", -0.001, 0.0)),
        )
    )
    words = " ".join(page.text.split())
    order = [words.index(part) for part in ("EDGE", "Beside naive baselines", "By kind of step", "Money", "By symbol")]
    assert order == sorted(order)
    for part in ("ridge", "S07", "2.13.0", "Configuration", '"lr": 0.001', "Training", "survivors"):
        assert part in words
    ids = {attrs.get("id") for _, attrs in page.tags}
    assert {"plot-ic", "plot-profit", "plot-reliability", "plot-loss", "plot-importance"} <= ids


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
    hostile = Reader(
        render_report(
            _evaluation(name=HOSTILE, symbol=HOSTILE),
            config={"name": HOSTILE, HOSTILE: [HOSTILE]},
            provenance={HOSTILE: HOSTILE},
        )
    )
    assert sum(tag == "script" for tag, _ in hostile.tags) == sum(tag == "script" for tag, _ in plain.tags)
    assert hostile.text.count(HOSTILE) >= 5


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

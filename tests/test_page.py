"""In: names made to look like others, or to be code. Out: pages that show them as they are, and a picture of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from plotly.offline import get_plotlyjs

from klinepred.audit.check import Certificate, Check
from klinepred.audit.report import render_certificate
from klinepred.bars.health import examine
from klinepred.bars.health_page import render_health
from klinepred.evaluation.importance import Importance
from klinepred.evaluation.picture import draw_importance
from klinepred.evaluation.report import render_report
from klinepred.page import house
from klinepred.schema import CALENDAR, Bars
from tests.bars.made import NOW, walk
from tests.evaluation.test_report import _evaluation, background

TURNED = "A\u202egnp.exe\u2066B\u200bC\ufeffD\ud800"
SHOWN = r"A\u202egnp.exe\u2066B\u200bC\ufeffD\ud800"
LONG = "x" * 20_000
CODE = "\"'><img src=x onerror=alert(1)>{{7*7}}{% raw %}</title></style></script><!--"


def report_of(name: str) -> str:
    known = background(precision=name)
    assert known.quality is not None
    quality = known.quality.with_columns(symbol=pl.lit(name.replace("\ud800", "\ufffd")))
    evil = replace(known, config={"name": name}, provenance={name: name}, quality=quality, remarks=(name,))
    text = render_report(_evaluation(name=name), background=evil, weights=(Importance(name, 0.1, 0.1),))
    return text.replace(get_plotlyjs(), "")


def certificate_of(name: str) -> str:
    return render_certificate(Certificate((Check(name, "feature", False, name),)), title=name)


def health_of(name: str) -> str:
    frame = walk([name.replace("\ud800", "\ufffd")], days=2)
    return render_health(
        examine(Bars(frame.with_columns(pl.lit("XNYS").cast(pl.Categorical).alias(CALENDAR)).lazy()), now=NOW)
    )


PAGES = {"report": report_of, "certificate": certificate_of, "health": health_of}


@pytest.mark.parametrize("page", PAGES)
def test_signs_that_nobody_sees_are_shown(page: str) -> None:
    text = PAGES[page](TURNED)
    assert not set("\u202e\u2066\u200b\ufeff\ud800") & set(text)
    assert SHOWN.partition("D")[0] in text
    assert text.encode()


@pytest.mark.parametrize("page", PAGES)
def test_names_are_neither_markup_nor_templates_and_may_be_long(page: str) -> None:
    text = PAGES[page](CODE)
    assert "<img" not in text
    assert "{{7*7}}" in text
    assert "&lt;/title&gt;" in text
    assert LONG in PAGES[page](LONG)


def test_lines_and_scripts_of_the_world_stay_as_they_are() -> None:
    page = house().from_string("{{ text }}")
    for text in ("a\n\tb", "平安银行", "עברית", "é ± −", "\U0001f600"):
        assert page.render(text=text) == text


@pytest.mark.parametrize("name", [CODE, TURNED, "$\\frac{1}{0}$", "$", "x" * 64])
def test_a_picture_takes_any_name(tmp_path: Path, name: str) -> None:
    path = draw_importance((Importance(name.replace("\ud800", ""), 0.1, 0.1),), tmp_path / "x.png")
    assert path is not None
    assert path.read_bytes()[:4] == b"\x89PNG"

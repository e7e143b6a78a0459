"""In: reports as files, names that would like to be code. Out: what Chromium shows of them, wide, narrow and dark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from klinepred.evaluation.importance import Importance
from klinepred.evaluation.report import write_report
from tests.browser import Page, browser, open_page
from tests.evaluation.test_report import _evaluation, background

EVIL = '</script><img src="x" onerror="window.hit = 1"><script>window.hit = 1</script>'
PLOTS = {"loss", "skill", "norms", "scale", "reliability", "ic", "profit"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    browser()
    with open_page(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def show(page: Page, path: Path, *, width: int, scheme: str = "light") -> None:
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    page.open(path.as_uri())
    page.until("document.readyState === 'complete' && document.querySelectorAll('.plot .main-svg').length > 0")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weights = (Importance("price__return_1", 0.02, 0.01), Importance("trend__rsi_14", -0.001, 0.0))
    folder = tmp_path_factory.mktemp("a folder, für Berichte")
    return write_report(_evaluation(), folder / "report.html", background=background(), weights=weights)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_file_shows_every_plot_and_nothing_runs_out_of_the_page(report: Path, page: Page, width: int) -> None:
    show(page, report, width=width)
    drawn = page.ask("[...document.querySelectorAll('.plot')].filter(p => p.querySelector('.main-svg')).map(p => p.id)")
    assert {name.removeprefix("plot-") for name in drawn} == PLOTS
    assert page.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    wide = "[...document.querySelectorAll('section, header, .plot, p')].every(p => p.getBoundingClientRect().right <= "
    assert page.ask(f"{wide}{width})")
    assert page.ask("document.querySelector('.word').innerText") == "EDGE"
    assert page.ask("document.querySelector('.word').getBoundingClientRect().bottom") < 300, "the verdict comes first"
    assert page.ask("performance.getEntriesByType('resource').length") == 0, "nothing is loaded"


def test_in_the_dark_the_page_is_dark_and_the_writing_on_the_plots_light(report: Path, page: Page) -> None:
    bright = "(c => (c[0] + c[1] + c[2]) / 3)({}.match(/[0-9]+/g).map(Number))"
    paper = bright.format("getComputedStyle(document.querySelector('section')).backgroundColor")
    ink = bright.format("getComputedStyle(document.querySelector('#plot-ic .xtick text')).fill")
    show(page, report, width=1280)
    assert page.ask(paper) > 200
    assert page.ask(ink) < 80
    show(page, report, width=1280, scheme="dark")
    assert page.ask(paper) < 60
    assert page.ask(ink) > 180


def test_names_that_would_be_code_are_shown_and_not_run(page: Page, tmp_path: Path) -> None:
    known = background(precision=EVIL, precision_reason=EVIL, device=EVIL, precision_fallback=EVIL)
    assert known.quality is not None
    evil = replace(
        known,
        config={"name": EVIL, EVIL: EVIL},
        provenance={EVIL: EVIL},
        quality=known.quality.with_columns(symbol=pl.lit(EVIL)),
        remarks=(EVIL,),
    )
    weights = (Importance(EVIL, 0.1, 0.1),)
    path = write_report(_evaluation(name=EVIL, symbol=EVIL), tmp_path / "report.html", background=evil, weights=weights)
    show(page, path, width=1280)
    assert page.ask("window.hit") is None
    assert page.ask("document.images.length") == 0
    assert page.ask("document.scripts.length") == 2
    assert page.text().count("window.hit") >= 8

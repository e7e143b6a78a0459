"""In: mkdocs.yml and the pages. Out: none is missing, nothing comes from elsewhere, names are those of the code."""

from __future__ import annotations

import re
from importlib import import_module

import click

import klinepred
from tests.cli.test_main import EVERY
from tests.docs.blocks import REPO

DOCS = REPO / "docs"
SITE = (REPO / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_page_has_its_place_in_the_site() -> None:
    listed = re.findall(r": ([\w.-]+\.md)$", SITE, re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md"))


def test_the_site_asks_nobody_for_anything() -> None:
    assert "://" not in SITE.replace("file://", "")
    assert "  font: false" in SITE
    assert "  - offline" in SITE
    assert (DOCS / re.findall(r"polyfills:\s+- (\S+)", SITE)[0]).is_file()  # the plugin's own would come from elsewhere
    for page in DOCS.glob("*.md"):
        assert not re.search(r"!\[[^\]]*\]\(\w+://", page.read_text(encoding="utf-8")), page.name
        assert "```mermaid" not in page.read_text(encoding="utf-8")  # it would be drawn by a script from elsewhere


def test_the_reference_has_every_public_name() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    homes = {f"{module}.{name}" for name, module in klinepred._HOMES.items()}
    assert homes <= {*named, "klinepred.settings.Pipeline"}
    for path in named:
        module, _, name = path.rpartition(".")
        assert getattr(import_module(module), name).__doc__, path


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name, command in EVERY.items():
        if not isinstance(command, click.Group):
            assert re.search(rf"`(klinepred )?([a-z]+ )?{name.split()[-1]}`", page), name


def test_the_map_of_the_house_names_what_is_there() -> None:
    page = (DOCS / "house.md").read_text(encoding="utf-8")
    rooms = {path.name for path in (REPO / "klinepred").iterdir() if (path / "__init__.py").is_file()}
    assert {room for room in rooms if re.search(rf"`(klinepred/)?{room}/?`", page)} == rooms
    for path in re.findall(r"`(klinepred/[\w./]+)`", page):
        assert (REPO / path).exists(), path


def test_the_picture_of_a_step_has_the_code_s_own_names_in_their_order() -> None:
    picture = (DOCS / "pictures" / "mixed-precision.svg").read_text(encoding="utf-8")
    calls = re.findall(r'font-family="monospace"[^>]*>([\w.]+)\(', picture)
    assert len(calls) == 9
    assert "take_step" in picture
    source = (REPO / "klinepred" / "training" / "step.py").read_text(encoding="utf-8")
    body = source[source.index("def take_step") : source.index("def clip_gradients")]
    places = [body.rindex("network)(x_BTF)" if call == "network" else f"{call}(") for call in calls]
    assert places == sorted(places)


def test_nobody_is_sent_to_the_deprecated_names() -> None:
    for page in DOCS.glob("*.md"):
        for line in page.read_text(encoding="utf-8").splitlines():
            assert "torch.cuda.amp" not in line or "deprecated" in line or "older texts" in line, page.name

"""In: this source tree. Out: sdist and wheel with all of it and nothing else, which work once they are installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import klinepred
from klinepred.cli import COMMANDS
from klinepred.paths import default_pipelines, default_presets, defaults_dir

REPO = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text())


def build(source: Path, folder: Path, *what: str) -> Path:
    """What `python -m build` makes of a source tree, by the tools that are installed here."""
    words = [sys.executable, "-m", "build", *what, "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this tree, and the wheel that comes of the sdist."""
    return build(REPO, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.unpack_archive(wheel, folder, "zip")
    return folder


def test_wheel_puts_only_klinepred_into_site_packages(unpacked: Path) -> None:
    assert {path.name for path in unpacked.iterdir()} == {"klinepred", f"klinepred-{klinepred.__version__}.dist-info"}
    kinds = {path.suffix for path in (unpacked / "klinepred").rglob("*") if path.is_file()}
    assert kinds <= {".py", ".toml", ".typed", ".j2", ".html", ".css", ".js"}
    assert (unpacked / "klinepred" / "py.typed").is_file()


def test_wheel_ships_every_pipeline_and_preset(unpacked: Path) -> None:
    shipped = unpacked / "klinepred" / "defaults"
    for source, target in (("pipelines", "pipelines"), ("models/presets", "presets")):
        here = {path.name: path.read_bytes() for path in (REPO / source).glob("*.toml")}
        assert here
        assert {path.name: path.read_bytes() for path in (shipped / target).iterdir()} == here


def test_wheel_has_every_module_of_the_package(unpacked: Path) -> None:
    def modules(root: Path) -> set[str]:
        return {path.relative_to(root).as_posix() for path in (root / "klinepred").rglob("*.py")}

    assert modules(unpacked) == modules(REPO)


def test_wheel_makes_the_command_and_carries_the_licence(unpacked: Path) -> None:
    info = unpacked / f"klinepred-{klinepred.__version__}.dist-info"
    assert "klinepred = klinepred.cli:main" in (info / "entry_points.txt").read_text()
    assert "Apache License" in (info / "licenses" / "LICENSE").read_text()
    assert "Requires-Python: >=3.11" in (info / "METADATA").read_text()


def test_the_sdist_gives_the_wheel_that_the_tree_gives(wheel: Path, tmp_path: Path) -> None:
    (direct,) = build(REPO, tmp_path, "--wheel").glob("*.whl")
    assert direct.name == wheel.name
    assert contents(direct) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_sdist_has_what_is_needed_to_build_test_and_read_it(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no checkout of git")
    left_out = {name for name in listed.stdout.splitlines() if name not in names}
    assert {name for name in left_out if not name.startswith(("mlruns/", "models/trained/", ".ci/"))} == set()
    assert not {name for name in names if re.search(r"(^|/)(__pycache__|\.venv|shared|site|demo-workspace)(/|$)", name)}


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment, the wheel installed by pip; dependencies are read from where this one has them.

    Installing torch again would take minutes. A plain path in a `.pth` file does not follow the `.pth` files that lie
    there, so the editable klinepred of this environment is not seen.
    """
    home = tmp_path_factory.mktemp("an empty environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=60)
    words = ["--python", str(home), "install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=120)
    (site,) = home.glob("lib/python*/site-packages")
    here = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "dependencies.pth").write_text("\n".join(here) + "\n")
    return home / "bin"


def installed(environment: Path, *words: str, cwd: Path) -> str:
    """What a program of the environment says on stdout; the source tree is nowhere near."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    program, *rest = words
    done = subprocess.run(
        [str(environment / program), *rest], cwd=cwd, env=clean, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_command_knows_itself_and_every_command(environment: Path, tmp_path: Path) -> None:
    assert installed(environment, "klinepred", "--version", cwd=tmp_path).split()[-1] == klinepred.__version__
    help_ = installed(environment, "klinepred", "--help", cwd=tmp_path)
    assert all(re.search(rf"^  {name} ", help_, re.MULTILINE) for name in COMMANDS)


def test_the_installed_package_finds_its_own_defaults(environment: Path, tmp_path: Path) -> None:
    code = (
        "import klinepred as kp\n"
        "from klinepred.config import pipeline_names\n"
        "from klinepred.paths import defaults_dir\n"
        "for name in pipeline_names():\n"
        "    print(name, kp.load_pipeline(name).model.hidden)\n"
        "print(defaults_dir())\n"
    )
    *lines, folder = installed(environment, "python", "-c", code, cwd=tmp_path).splitlines()
    assert lines == [f"{path.stem} 256" for path in sorted((REPO / "pipelines").glob("*.toml"))]
    assert Path(folder).is_relative_to(environment.parent)


def test_the_installed_command_makes_a_workspace_and_fills_it(environment: Path, tmp_path: Path) -> None:
    """What it reads of the package by the way: pipelines, presets, templates of pages."""
    installed(environment, "klinepred", "init", "space", cwd=tmp_path)
    made = {path.name for path in (tmp_path / "space" / "pipelines").iterdir()}
    assert made == {path.name for path in (REPO / "pipelines").glob("*.toml")}
    span = ("--start", "2026-03-02", "--end", "2026-03-06", "--set", "data.simulate.symbols=2")
    where = ("-w", "space", "--now", "2026-04-30T22:00:00Z")
    said = installed(environment, "klinepred", "ingest", "-p", "demo", *span, *where, "--format", "json", cwd=tmp_path)
    assert [row["new"] for row in json.loads(said)["symbols"]] == [390, 390]
    installed(environment, "klinepred", "bars", "check", *where, "--html", "health.html", "-q", cwd=tmp_path)
    assert "SIM002" in (tmp_path / "health.html").read_text()


def test_editable_install_finds_the_files_of_the_tree() -> None:
    assert defaults_dir() == REPO
    assert default_pipelines() == REPO / "pipelines"
    assert default_presets() == REPO / "models" / "presets"


def test_pipelines_and_models_are_no_python_packages() -> None:
    assert not list((REPO / "pipelines").rglob("*.py"))
    assert not list((REPO / "models").rglob("*.py"))


def test_constraints_pin_every_direct_dependency() -> None:
    lines = (REPO / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    direct = [*project["dependencies"], *extras["test"], *extras["docs"]]
    names = {line.partition(">")[0].partition("[")[0].lower().replace("_", "-") for line in direct}
    assert names <= set(pinned)
    assert pinned["torch"] == "2.13.0"
    assert not [version for version in pinned.values() if "+" in version]


def test_no_file_of_the_packaging_names_an_index() -> None:
    for name in ("constraints.txt", "pyproject.toml", "Makefile", ".ci/run"):
        text = (REPO / name).read_text()
        assert "--index" not in text
        assert "://" not in text
        assert "find-links" not in text

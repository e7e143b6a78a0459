"""In: this source tree. Out: a wheel with the package, its defaults and nothing else; names that type checkers see."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import klinepred
from klinepred.paths import default_pipelines, default_presets, defaults_dir

REPO = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPO)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
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


def test_wheel_finds_its_own_defaults(unpacked: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r})\n"
        "import klinepred as kp\n"
        "from klinepred.config import pipeline_names\n"
        "from klinepred.paths import defaults_dir\n"
        "for name in pipeline_names():\n"
        "    print(name, kp.load_pipeline(name).model.hidden)\n"
        "print(defaults_dir())\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    *lines, folder = done.stdout.splitlines()
    assert lines == [f"{path.stem} 256" for path in sorted((REPO / "pipelines").glob("*.toml"))]
    assert Path(folder) == unpacked / "klinepred" / "defaults"


def test_editable_install_finds_the_files_of_the_tree() -> None:
    assert defaults_dir() == REPO
    assert default_pipelines() == REPO / "pipelines"
    assert default_presets() == REPO / "models" / "presets"


def test_pipelines_and_models_are_no_python_packages() -> None:
    assert not list((REPO / "pipelines").rglob("*.py"))
    assert not list((REPO / "models").rglob("*.py"))


def test_every_public_name_can_be_had() -> None:
    for name in klinepred.__all__:
        assert getattr(klinepred, name) is not None
    assert dir(klinepred) == sorted(klinepred.__all__)


def test_type_checkers_and_python_see_the_same_names() -> None:
    tree = ast.parse(Path(klinepred.__file__).read_text())
    (typed,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported = {
        alias.name: node.module for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == klinepred._HOMES
    assert set(klinepred.__all__) == {"__version__", *imported}


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        getattr(klinepred, "trian")  # noqa: B009  # a type checker would refuse the plain form


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

"""In: the source of the product and its benchmarks. Out: what could run code out of data, by name and line: none."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FILES: Final = sorted([*(ROOT / "klinepred").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])

MODULES: Final = """
    pickle cPickle _pickle pickletools marshal shelve dbm joblib dill cloudpickle jsonpickle klepto runpy
    code codeop imp ctypes cffi telnetlib ftplib xmlrpc
"""
"""Modules that make objects or code out of bytes, or speak in plain text."""
CALLS: Final = """
    eval exec compile __import__ execfile os.system os.popen os.execv os.execve os.execvp os.spawnl
    os.spawnv pty.spawn subprocess.getoutput subprocess.getstatusoutput torch.jit.load torch.hub.load
    torch.package yaml.load yaml.full_load yaml.unsafe_load yaml.load_all pd.read_pickle pandas.read_pickle
    tempfile.mktemp
"""
ENDINGS: Final = """
    read_pickle to_pickle deserialize unpickle all_gather_object broadcast_object_list gather_object
    scatter_object_list send_object_list recv_object_list unsafe_load full_load getoutput
"""
"""Last names of calls, whatever they are called on: torch.distributed's `_object` ones pickle, polars' `deserialize`
may."""
ALLOWED: Final = frozenset(
    {
        ("klinepred/training/checkpoint.py", "from pickle import UnpicklingError"),  # an error to catch
        ("klinepred/training/heap.py", "import ctypes"),  # gives memory back to the system: malloc_trim
        ("klinepred/training/precision.py", "import ctypes.util"),  # whether there is a driver of CUDA
        ("klinepred/__init__.py", "import_module"),  # names of our own, loaded when first used
        ("klinepred/cli/__init__.py", "import_module"),  # the file of a command
        ("klinepred/features/plugins.py", "point.load"),  # features of packages the user has installed
        ("klinepred/serving/served.py", "load_model"),  # of the folder that it has just written itself
    }
)


def _name(node: ast.expr) -> str:
    """`a.b.c` of a call's function; a part that is no name is `?`."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        if (node.module or "").split(".")[0] in MODULES.split():
            yield f"from {node.module} import {', '.join(alias.name for alias in node.names)}"
        return
    yield from (f"import {alias.name}" for alias in node.names if alias.name.split(".")[0] in MODULES.split())


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _calls(node: ast.Call) -> Iterator[str]:
    name = _name(node.func)
    last = name.rpartition(".")[2]
    words = {word.arg: word.value for word in node.keywords}
    if name in CALLS.split() or last in ENDINGS.split():
        yield name
    if last == "load" and name.startswith("torch") and not _is(words.get("weights_only"), True):
        yield f"{name} without weights_only=True"
    if (
        last == "load"
        and name in ("np.load", "numpy.load")
        and not _is(words.get("allow_pickle", ast.Constant(False)), False)
    ):
        yield f"{name} with allow_pickle"
    if "shell" in words and not _is(words["shell"], False):
        yield f"{name} with a shell"
    if last == "Environment" and not _is(words.get("autoescape"), True):
        yield f"{name} without autoescape=True"
    if last in ("import_module", "load_model") or name == "point.load":
        yield last if last != "load" else name
    if None in words and last in ("run", "Popen", "load") and name.split(".")[0] in ("subprocess", "torch"):
        yield f"{name} with options that cannot be read here"


def found(text: str) -> list[tuple[int, str]]:
    """Lines and names of what may not be there."""
    out = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            out += [(node.lineno, what) for what in _imports(node)]
        elif isinstance(node, ast.Call):
            out += [(node.lineno, what) for what in _calls(node)]
    return sorted(out)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_makes_code_out_of_data(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    odd = [f"{place}:{line}: {what}" for line, what in found(path.read_text()) if (place, what) not in ALLOWED]
    assert odd == []


def test_each_exception_is_still_needed() -> None:
    there = {(place, what) for place, _ in ALLOWED for _, what in found((ROOT / place).read_text())}
    assert there >= ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "import torch, marshal",
        "from pickle import loads",
        "import joblib.numpy_pickle as quick",
        "eval(text)",
        "exec(text, {})",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "subprocess.run(words, shell=flag)",
        "subprocess.run(words, **options)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text)",
        "frame.to_pickle(path)",
        "pl.LazyFrame.deserialize(bytes)",
        "distributed.all_gather_object(out, this)",
        "jinja2.Environment(loader=one)",
        "mlflow.pyfunc.load_model(uri)",
    ],
)
def test_the_walk_finds_what_it_looks_for(line: str) -> None:
    assert found(textwrap.dedent(line))


@pytest.mark.parametrize(
    "line", ["network.eval()", "torch.load(p, weights_only=True)", "subprocess.run(words)", "np.load(path)"]
)
def test_the_walk_leaves_alone_what_is_fine(line: str) -> None:
    assert not found(line)


def test_templates_escape_all_but_the_library_of_the_plots() -> None:
    templates = sorted((ROOT / "klinepred").rglob("*.j2"))
    assert len(templates) >= 3
    for path in templates:
        text = path.read_text()
        assert "autoescape" not in text
        assert set(re.findall(r"\{\{[^{}]*\bsafe\b[^{}]*\}\}", text)) <= {"{{ plotly | safe }}"}
        assert 'http-equiv="Content-Security-Policy" content="default-src \'none\';' in text

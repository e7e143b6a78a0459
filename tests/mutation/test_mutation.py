"""In: a module of three lines, its one test. Out: what the test checks is killed, what it does not check survives."""

from __future__ import annotations

from pathlib import Path

from tests.mutation.bench import Bench
from tests.mutation.operators import Mutant, Source
from tests.mutation.results import equivalents
from tests.mutation.rooms import ROOMS

ROOT = Path(__file__).parents[2]
TOY = '''"""Words."""
def double(x: int = 3, *, note: str = "a") -> int:
    if x < 0:
        raise ValueError(f"{x + 1}")
    return x * 2
'''


def test_places_are_found_and_texts_types_and_messages_are_left_alone() -> None:
    source = Source("toy.py", TOY)
    made = [source.mutant(spot) for spot in source.spots]
    changes = {(mutant.was, mutant.now) for mutant in made if mutant is not None}
    head = 'def double(x: int = 3, *, note: str = "a") -> int:'
    assert changes == {
        (head, head.replace("3", "4")),
        ("if x < 0:", "if x <= 0:"),
        ("if x < 0:", "if x < 1:"),
        ("return x * 2", "return x / 2"),
        ("return x * 2", "return x * 3"),
    }


def test_a_link_of_a_chain_and_a_statement_are_left_out_but_no_module_takes_the_place_of_a_call() -> None:
    source = Source("toy.py", "import a\nfrom b import C, go\n\nC.one(1).two(x=2)\na.three(a)\ngo()\n")
    made = [source.mutant(spot) for spot in source.spots if spot.startswith(("link", "statement"))]
    assert {mutant.now for mutant in made if mutant is not None} == {"C.one(1)", "C.two(x=2)", "pass"}


def test_what_is_tested_is_killed_what_is_not_survives_and_what_cannot_be_imported_is_void(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "test_toy.py").write_text(
        "from toy import double\n\ndef test_it() -> None:\n    assert double(5) == 10\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    source = Source("toy.py", TOY)
    found = {}
    with Bench(tmp_path, parts=("toy.py", "test_toy.py", "pytest.ini"), preload=("hypothesis",)) as bench:
        for spot in source.spots:
            mutant = source.mutant(spot)
            if mutant is not None and mutant.now in ("return x * 3", "if x <= 0:"):
                found[mutant.now] = bench.try_out(mutant, ("test_toy.py",))
        found["void"] = bench.try_out(Mutant("toy.py", "", "import no_such_module", "", ""), ("test_toy.py",))
    outcomes = {now: verdict.outcome for now, verdict in found.items()}
    assert outcomes == {"return x * 3": "killed", "if x <= 0:": "survived", "void": "void"}
    assert found["return x * 3"].by == "test_toy.py::test_it"
    assert (tmp_path / "toy.py").read_text() == TOY


def test_rooms_and_judgements_are_of_files_and_lines_that_there_are() -> None:
    for modules in ROOMS.values():
        for module, tests in modules.items():
            for name in (module, *tests):
                assert (ROOT / name.partition("::")[0]).is_file(), name
    for row in equivalents():
        assert row["why"]
        lines = " ".join(line.strip() for line in (ROOT / row["module"]).read_text(encoding="utf-8").splitlines())
        assert row["was"] in lines, row

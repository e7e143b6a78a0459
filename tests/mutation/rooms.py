"""In: nothing. Out: the rooms where a silent error costs money, their modules, and the tests that ought to notice."""

from __future__ import annotations

from typing import Final

PARTS: Final = ("klinepred", "tests", "pipelines", "models", "docs", "pyproject.toml")
"""What of the tree is copied."""
PRELOAD: Final = (
    *("numpy", "polars", "polars_talib", "pyarrow", "pydantic", "hypothesis", "exchange_calendars", "deltalake"),
    *("torch", "sklearn.linear_model", "mlflow", "matplotlib.pyplot", "plotly.graph_objects", "click", "rich.console"),
)
"""What takes long to import and is not ours."""

_MAKE: Final = ("tests/dataset/test_make.py", "tests/dataset/test_real_days.py")
_BARS: Final = tuple(f"tests/bars/test_{name}.py" for name in ("slots", "check", "clean", "isolated", "sift"))
_FEATURES: Final = tuple(
    f"tests/features/test_{name}.py"
    for name in (
        "pinned",
        "registry",
        "clock",
        "plain_answers",
        "talib_answers",
        "universe",
        "masks",
        "newest",
        "futures",
    )
)
_LOOP: Final = (
    *(
        f"tests/training/test_{name}.py"
        for name in ("schedule", "loss", "state", "step", "average", "validation", "told", "loop")
    ),
    "tests/training/test_ranks.py::test_shares_of_a_batch_are_the_batch_and_carry_its_count_of_labels",
    "tests/training/test_ranks.py::test_with_fewer_sequences_than_processes_no_row_counts_twice",
    "tests/training/test_network_options.py",
    "tests/training/test_overflow.py",
)

ROOMS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "target": {
        "klinepred/dataset/target.py": ("tests/dataset/test_target.py", "tests/dataset/test_sequences.py", *_MAKE),
    },
    "split": {
        "klinepred/dataset/split.py": ("tests/dataset/test_split.py", "tests/dataset/test_sequences.py", *_MAKE),
    },
    "scaler": {
        "klinepred/dataset/scale.py": (
            "tests/dataset/test_scale.py",
            "tests/dataset/test_memory.py::test_scaling_into_a_file_and_row_by_row_choice_give_the_same_numbers",
            *_MAKE,
        ),
    },
    "sequences": {
        "klinepred/dataset/sequences.py": ("tests/dataset/test_sequences.py", *_MAKE),
        "klinepred/dataset/make.py": (_MAKE[0], "tests/dataset/test_sequences.py", _MAKE[1]),
    },
    "clean": {f"klinepred/bars/{name}.py": _BARS for name in ("clean", "check", "slots", "isolated", "sift")},
    "features": {
        f"klinepred/features/{name}.py": _FEATURES
        for name in (
            *("price", "trend", "volatility", "volume", "clock", "cross"),
            *("prepare", "columns", "build", "spec"),
        )
    },
    "loop": {
        f"klinepred/training/{name}.py": _LOOP
        for name in ("loop", "epochs", "step", "loss", "schedule", "average", "rows", "state", "validation")
    },
}
"""By room and module the tests that are run, quick ones first: the first that fails ends a trial."""

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
_SIFT: Final = (
    *("an_isolated_error_is_set_aside_with_its_reason_and_counts_as_missing", "a_corrected_bar_takes_its_place"),
    *("an_error_over_a_stored_bar_is_no_revision_and_no_split", "a_last_bar_in_doubt_is_stored_once_its_level_stays"),
    *("a_last_bar_in_doubt_stays_out_where_the_level_goes_back", "a_wrong_delivery_cannot_push_stored_bars_out"),
    "a_stored_bar_that_later_bars_show_to_be_wrong_is_withdrawn_and_said",
    "a_stamp_counts_once_as_received_then_as_stored_then_as_set_aside",
    "the_rest_of_the_delivery_and_other_symbols_are_untouched",
)
"""Without those that take in the same bars in many orders: they need a minute."""
_BARS: Final = {
    "slots": ("slots", "clean", "check"),
    "check": ("check", "clean"),
    "clean": ("clean", "check"),
    "isolated": ("isolated",),
    "sift": tuple(f"sift.py::test_{name}" for name in _SIFT),
}
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
    "tests/training/test_cases.py::test_47_a_copy_of_a_network_puts_its_weights_in_one_chunk_again",
    "tests/training/test_network_options.py",
    "tests/training/test_overflow.py",
    "tests/training/test_ensemble.py::test_each_member_is_its_seed_trained_alone",
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
            "tests/dataset/test_memory.py::test_scaling_where_the_rows_lie_gives_what_scaling_a_table_gives",
            *_MAKE,
        ),
    },
    "sequences": {
        "klinepred/dataset/sequences.py": ("tests/dataset/test_sequences.py", *_MAKE),
        "klinepred/dataset/make.py": (_MAKE[0], "tests/dataset/test_sequences.py", _MAKE[1]),
    },
    "clean": {
        f"klinepred/bars/{module}.py": tuple(
            f"tests/bars/test_{name if '::' in name else f'{name}.py'}" for name in names
        )
        for module, names in _BARS.items()
    },
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

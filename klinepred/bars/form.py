"""In: a Delta table, its columns in this version of klinepred. Out: nothing, or a refusal that names the others."""

from __future__ import annotations

from collections.abc import Collection

from deltalake import DeltaTable

from klinepred.errors import StoreError
from klinepred.objects import Place


def refuse_other(table: DeltaTable, folder: Place, columns: Collection[str]) -> None:
    """Make sure that the table has these columns and no other: they are the format of the store.

    Raises
    ------
    StoreError
        Another version of klinepred has written it, or another program.
    """
    have, wanted = {field.name for field in table.schema().fields}, set(columns)
    more, less = ", ".join(sorted(have - wanted)), ", ".join(sorted(wanted - have))
    if not more and not less:
        return
    odd = [*([f"without {less}"] if less else []), *([f"with {more} besides"] if more else [])]
    raise StoreError(
        f"store {folder}",
        expected=f"a table of this version of klinepred: {', '.join(columns)}",
        got=f"one {', '.join(odd)}",
        do="work on it with the klinepred that wrote it; or export its bars with that one, and take them in here into a"
        " new workspace",
    )

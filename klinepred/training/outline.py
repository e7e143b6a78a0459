"""In: a dataset. Out: `Outline`: enough of it to tell features computed another way from other features."""

# Shapes: N rows, F features.

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from klinepred.dataset.make import Dataset

ROUNDING: Final = 1e-5
"""Most that a scaled feature may differ, as a share of its size or of one spread, when it is computed another way."""


@dataclass(frozen=True)
class Outline:
    """A dataset but for the last digits of its features.

    Attributes
    ----------
    rows
        A hash over labels, parts, sequences and the definitions of the features.
    count
        Rows.
    sums, sizes
        Of each feature, the sum over the rows and the sum of absolute values.
    """

    rows: str
    count: int
    sums: tuple[float, ...]
    sizes: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {"rows": self.rows, "count": self.count, "sums": list(self.sums), "sizes": list(self.sizes)}

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Outline:
        """The inverse of `to_dict`."""
        return cls(table["rows"], table["count"], tuple(table["sums"]), tuple(table["sizes"]))

    def near(self, other: Outline) -> bool:
        """Whether the two differ by no more than the rounding of features.

        Features out of the cache are within 1e-6 of those computed over the whole history in one go.
        """
        if self.rows != other.rows:
            return False
        room_F = ROUNDING * (self.count + np.asarray(self.sizes))
        pairs = ((self.sums, other.sums), (self.sizes, other.sizes))
        return all(bool((np.abs(np.asarray(one) - np.asarray(two)) <= room_F).all()) for one, two in pairs)


def outline(data: Dataset) -> Outline:
    """The outline of a dataset: one pass over its arrays."""
    digest = hashlib.blake2b(data.features.fingerprint.encode(), digest_size=16)
    cut = data.sequences
    for array in (data.y_N, data.part_N, cut.start_S, cut.length_S, cut.lead_S):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    count, columns = data.x_NF.shape
    sums_F, sizes_F = np.zeros(columns), np.zeros(columns)
    for at in range(0, count, 65_536):
        part_NF = data.x_NF[at : at + 65_536]
        sums_F += part_NF.sum(axis=0, dtype=np.float64)
        sizes_F += np.abs(part_NF).sum(axis=0, dtype=np.float64)
    return Outline(digest.hexdigest(), count, tuple(sums_F.tolist()), tuple(sizes_F.tolist()))

"""In: stretches of bars, what links their price levels. Out: the factor between any two of them, or a contradiction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, log
from typing import Final, Literal

from klinepred.bars.basis import MANY, SAME_RATIO, VISIBLE, Shift, in_words

Number = Fraction | float
ONE: Final = Fraction(1)


@dataclass(frozen=True)
class Factor:
    """A ratio between two bases of one symbol, below 1.

    Attributes
    ----------
    price
        What prices of the higher basis are multiplied by.
    kind
        split: volumes are divided by it; unit: they stay; zero: there is no volume to tell.
    same, common
        How many of the common bars of the stretches with this ratio have it.
    """

    price: Number
    kind: Literal["split", "unit", "zero"]
    same: int
    common: int

    @property
    def volume(self) -> Number:
        """What the volumes are multiplied by where prices are by `price`."""
        return 1 / self.price if self.kind == "split" else ONE


@dataclass
class Levels:
    """Stretches by number, joined into groups within which the factors are known.

    Attributes
    ----------
    to_root
        By stretch, what its prices and volumes are multiplied by to come to the basis of its group's first member.
    group
        By stretch, the number of its group.
    """

    to_root: list[tuple[Number, Number]]
    group: list[int]

    @classmethod
    def apart(cls, count: int) -> Levels:
        """`count` stretches of which nothing is known."""
        return cls([(ONE, ONE)] * count, list(range(count)))

    def join(self, first: int, second: int, price: Number = ONE, volume: Number = ONE) -> bool:
        """Take down that `second` times the factors is on the basis of `first`; False = that contradicts what is."""
        here, there = self.to_root[first], self.to_root[second]
        want = (price * here[0], volume * here[1])
        if self.group[first] == self.group[second]:
            return abs(log(float(want[0]) / float(there[0]))) <= SAME_RATIO
        old, new = self.group[second], self.group[first]
        for number, group in enumerate(self.group):
            if group == old:
                mine = self.to_root[number]
                self.to_root[number] = (mine[0] / there[0] * want[0], mine[1] / there[1] * want[1])
                self.group[number] = new
        return True

    def between(self, number: int, target: int) -> tuple[Number, Number]:
        """What `number` is multiplied by to come to the basis of `target`; both are of one group."""
        here, there = self.to_root[number], self.to_root[target]
        price, volume = here[0] / there[0], here[1] / there[1]
        return (ONE, ONE) if is_one(price) else (price, volume)

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(set(self.group))


def is_one(factor: Number) -> bool:
    """Whether it is 1 but for the rounding of products."""
    return abs(float(factor) - 1.0) < 1e-9


def find_factors(shifts: Sequence[Shift]) -> list[Factor] | str:
    """The differing ratios among `shifts`, all of them below 1; or why they cannot be followed."""
    left = sorted(shifts, key=lambda shift: (-shift.same, float(shift.ratio), shift.first))
    out = list[Factor]()
    while left:
        near = [shift for shift in left if abs(log(shift.ratio / left[0].ratio)) <= 2 * SAME_RATIO]
        ratio, same = left[0].ratio, sum(shift.same for shift in near)
        left = [shift for shift in left if shift not in near]
        lead = f"bars of two bases came: closes of the one are {in_words(ratio)} those of the other on {same:,} bars"
        if not isinstance(ratio, Fraction) and same < MANY:
            return f"{lead}; that is no usual factor, and fewer than {MANY} bars show it"
        votes = {kind: sum(s.same for s in near if s.volume == kind) for kind in ("split", "unit", "neither")}
        most = max(votes, key=lambda kind: votes[kind])
        if not votes[most]:
            most = "zero"
        if most == "neither":
            return f"{lead}; volumes neither stayed nor changed by the inverse, so nothing says how to rescale them"
        kind: Literal["split", "unit", "zero"] = "split" if most == "split" else "unit" if most == "unit" else "zero"
        out.append(Factor(ratio, kind, same, sum(shift.common for shift in near)))
    return out


def nearest(factors: Sequence[Factor], ratio: float) -> Factor:
    """The factor that `ratio`, below 1, was counted to."""
    return min(factors, key=lambda factor: abs(log(float(factor.price) / ratio)))


def read_step(step: float, factors: Sequence[Factor]) -> tuple[Number, Number] | None:
    """What bars before a step of the price (after over before) are multiplied by to be on the basis of those after it.

    None = the step is near neither 1 nor a factor, or the factors are too small to be seen in prices.
    """
    both = [(ONE, ONE), *((f.price, f.volume) for f in factors), *((1 / f.price, 1 / f.volume) for f in factors)]
    least = min(abs(log(factor.price)) for factor in factors)
    found = min(both, key=lambda pair: abs(log(step / float(pair[0]))))
    if exp(least) < VISIBLE or abs(log(step / float(found[0]))) > least / 3.0:
        return None
    return found

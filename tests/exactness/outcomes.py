"""Every outcome of a kernel with its exact probability, by running it as plain Python once for each.

A kernel draws uniform numbers and asks for each whether it lies below something, or which of n equal parts it is in.
`Uniform` keeps no number but the interval that the answers so far leave, and each question that is open branches. So a
distribution over states can be carried through a sweep of the package's own source without any sampling error.
"""

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Self

from mutants import kernel_files, mutated, package

_PLAIN_JIT = "def jit(function):\n    return function\n\n\ninlined = jit\n"
_MATH = "from math import *\nfrom outcomes import log_of as log\n"
_MODULES = ("links.link_sweep", "links.ownership", "links.layout")
_SURE = 1e-13  # of an answer that rounding alone leaves open


class Uniform:
    """A uniform number of which nothing is known but the answers that it gave."""

    def __init__(self, branches: "Branches") -> None:
        self.branches, self.low, self.high = branches, 0.0, 1.0

    def is_below(self, threshold: float) -> bool:
        share = (threshold - self.low) / (self.high - self.low)
        if share <= _SURE or share >= 1.0 - _SURE:
            return bool(share > 0.5)
        below = self.branches.pick([share, 1.0 - share]) == 0
        if below:
            self.high = threshold
        else:
            self.low = threshold
        return below


class Scaled:
    """slope * uniform + shift."""

    __array_ufunc__ = None  # numpy's numbers leave arithmetic to this class

    def __init__(self, uniform: Uniform, slope: float = 1.0, shift: float = 0.0) -> None:
        self.uniform, self.slope, self.shift = uniform, float(slope), float(shift)

    def __mul__(self, factor: float) -> Self:
        return type(self)(self.uniform, self.slope * factor, self.shift * factor)

    def __add__(self, term: float) -> Self:
        return type(self)(self.uniform, self.slope, self.shift + term)

    def __sub__(self, term: float) -> Self:
        return self + -term

    def __rsub__(self, term: float) -> Self:
        return self * -1.0 + term

    __rmul__, __radd__ = __mul__, __add__

    def __lt__(self, value: float) -> bool:
        threshold = (value - self.shift) / self.slope
        return self.uniform.is_below(threshold) if self.slope > 0 else not self.uniform.is_below(threshold)

    def __ge__(self, value: float) -> bool:
        return not self < value

    __le__, __gt__ = __lt__, __ge__  # a single point has no probability

    def __int__(self) -> int:
        ends = sorted(self.slope * u + self.shift for u in (self.uniform.low, self.uniform.high))
        for n in range(int(ends[0]), int(ends[1]) + 1):
            if self < n + 1:
                return n
        raise AssertionError("a number is in none of its parts")


class Log:
    """log of a `Scaled`."""

    def __init__(self, inner: Scaled) -> None:
        self.inner = inner

    def __lt__(self, value: float) -> bool:
        return self.inner < math.exp(min(value, 700.0))


def log_of(x: Any) -> Any:
    """`math.log`, also of what is not known."""
    return Log(x) if isinstance(x, Scaled) else math.log(x)


class Branches:
    """One way through all the choices of a run; `next` is the first that was not gone yet."""

    def __init__(self) -> None:
        self.path: list[int] = []
        self.shares: list[list[float]] = []

    def start(self) -> None:
        self.depth, self.probability = 0, 1.0

    def pick(self, shares: list[float]) -> int:
        if self.depth == len(self.path):
            self.path.append(0)
            self.shares.append(shares)
        choice = self.path[self.depth]
        self.depth += 1
        self.probability *= shares[choice]
        return choice

    def next(self) -> bool:
        while self.path and self.path[-1] + 1 == len(self.shares[-1]):
            self.path.pop()
            self.shares.pop()
        if self.path:
            self.path[-1] += 1
        return bool(self.path)

    def random(self) -> Scaled:
        return Scaled(Uniform(self))


def outcomes(run: Callable[[Branches], Any]) -> Iterator[tuple[float, Any]]:
    """(probability, what `run` gave) of every way through `run`, which gets what it takes for a generator."""
    branches = Branches()
    while True:
        branches.start()
        found = run(branches)
        yield branches.probability, found
        if not branches.next():
            return


def plain_kernels(*mistakes: tuple[str, str, str]) -> dict[str, ModuleType]:
    """The package's kernels of linked features as plain Python, with mistakes (file, text, what takes its place)."""
    files = kernel_files()
    for file, old, new in mistakes:
        files = mutated(files, file, (old, new))
    files = {
        file: text.replace("import math\n", "from thali.kernels import _math as math\n") for file, text in files.items()
    }
    return package("plain", files | {"_jit.py": _PLAIN_JIT, "_math.py": _MATH}, _MODULES)

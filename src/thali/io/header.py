"""Whether the first line of a text table is its header. Where it cannot be told, the file is refused."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thali.data.cell_text import Kind, kind_of, number, plain
from thali.errors import InvalidDataError
from thali.io.cells import Place, cell_error
from thali.io.row_names import are_mostly_text, are_numbered, same_form

_ABOVE_NAMES = re.compile(
    r"#|no|nr|id|ids|key|keys|index|idx|label|labels|names?|rows?|row.?names?|row.?number|unnamed: 0|samples?|genes?"
    r"|cases?|subjects?|items?|.*[ _.-](id|name|index|key|label|code)",
    re.IGNORECASE,
)
_YEARS = (1800, 2100)


class Header(NamedTuple):
    """Whether line 1 is a header, and what is to be said about it."""

    found: bool
    doubt: str = ""


def find_header(path: Path, line: int, first: Sequence[str], heads: Sequence[str], X: np.ndarray) -> Header:
    """Judge the first line by what is below it: the texts of the first column, and the numbers of all others.

    A line without text is a row; so is one that begins with a name and goes on with numbers which are no names of
    columns. Text in most cells makes a header. What is between them is refused.
    """
    kinds = [kind_of(cell) for cell in first]
    named = len(first) > 1 and are_mostly_text(heads)
    texts = [i for i, kind in enumerate(kinds) if kind is Kind.TEXT]
    if not texts:
        return _without_text(path, line, first, kinds, heads, X, named)
    if named and texts[0] == 0 and same_form(first[0], heads):
        return Header(False)
    if texts == [0] and len(first) > 1:
        return _text_first(path, line, first, kinds, X, named)
    rest = kinds[1:] if named else kinds
    n_text = rest.count(Kind.TEXT)
    numbers = [cell for cell, kind in zip(first, kinds, strict=True) if kind in (Kind.NUMBER, Kind.LIKE_NUMBER)]
    n_gaps = kinds[1:].count(Kind.MISSING) + bool(kinds[0] is Kind.MISSING and first[0].strip())
    labelled = named and _ABOVE_NAMES.fullmatch(first[0].strip()) and not any(map(_is_word, first))
    if all(map(plain, numbers)) and (n_text > len(numbers) + n_gaps or (labelled and n_text > len(numbers))):
        return Header(True)
    wrong = texts[1] if named and texts[0] == 0 else texts[0]
    raise cell_error(path, Place(line, wrong + 1), first[wrong], more=_NO_HEADER)


def _text_first(path: Path, line: int, first: Sequence[str], kinds: list[Kind], X: np.ndarray, named: bool) -> Header:
    """A line with text in its first cell and nowhere else."""
    rest = list(first[1:])
    blank = not any(cell.strip() for cell in rest)
    if _ABOVE_NAMES.fullmatch(first[0].strip()) and (blank or _may_be_names(rest)):
        return Header(True)
    if not named:
        raise cell_error(path, Place(line, 1), first[0], more=_NO_HEADER)
    if _are_years(rest, X[~np.isnan(X)]):
        return Header(True, _taken("of years", first))
    if Kind.NUMBER in kinds and not _may_be_names(rest) and not _ABOVE_NAMES.fullmatch(first[0].strip()):
        return Header(False)
    raise _ambiguous(path, line, first)


def _without_text(
    path: Path, line: int, first: Sequence[str], kinds: list[Kind], heads: Sequence[str], X: np.ndarray, named: bool
) -> Header:
    rest = list(first[1:])
    if not first[0].strip() and rest:
        if named or (are_numbered(heads) and _counts(rest)):
            if _may_be_names(rest):
                return Header(True)
            if named:
                raise _ambiguous(path, line, first)
        return Header(False)
    if named:
        if kinds[0] is Kind.MISSING and not _may_be_names(rest):
            return Header(False)  # a name such as NA
        raise _ambiguous(path, line, first)
    if not heads or not all(map(plain, first)) or len(set(first)) < len(first):
        return Header(False)
    values = np.array([float(cell) for cell in first])
    column = np.array([number(head) for head in heads], dtype=float)  # None becomes NaN
    below = np.concatenate([column[~np.isnan(column)], X[~np.isnan(X)]])
    n_whole = np.count_nonzero(below == np.round(below))
    broken = len(below) - n_whole
    if len(first) > 1 and _are_years(first, below) and _steps(values) is not None:
        return Header(True, _taken("of years", first))
    if len(first) > 2 and _counts(first) and broken > n_whole:
        return Header(True, _taken("that counts the columns", first))
    even = _steps(values) is not None if len(first) > 2 else _counts(first)
    if len(first) > 1 and (broken > 9 * n_whole or even):
        doubt = f"the first line ({_shown(first)}) is read as a row; if it is a header, put a letter before each number"
        return Header(False, doubt)
    return Header(False)


def _are_years(cells: Sequence[str], below: np.ndarray) -> bool:
    """Tell whether cells are years in order, and no number below them could be one."""
    if not all(map(plain, cells)):
        return False
    low, high = _YEARS
    years = [int(cell) for cell in cells]
    in_order = all(a < b for a, b in pairwise(years))
    return in_order and low <= years[0] and years[-1] <= high and not ((below >= low) & (below <= high)).any()


def _taken(what: str, first: Sequence[str]) -> str:
    return f"the first line ({_shown(first)}) is taken as a header {what}, not as a row"


def _shown(first: Sequence[str]) -> str:
    return ", ".join([*first[:3], "..."] if len(first) > 3 else first)


def _is_word(cell: str) -> bool:
    """Tell whether a word says that a cell is missing."""
    return bool(cell.strip()) and kind_of(cell) is Kind.MISSING


def _may_be_names(cells: Sequence[str]) -> bool:
    """Tell whether numbers may be the names of columns: distinct whole ones, or three at least in even steps."""
    if len(set(cells)) < len(cells) or not cells:
        return False
    if all(map(plain, cells)):
        return True
    if any(kind_of(cell) is not Kind.NUMBER for cell in cells) or len(cells) < 3:
        return False
    return _steps(np.array([number(cell) for cell in cells], dtype=float)) is not None


def _steps(values: np.ndarray) -> float | None:
    """The step of numbers that grow evenly."""
    steps = np.diff(values)
    even = len(steps) > 0 and steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-6, atol=0)
    return float(steps[0]) if even else None


def _counts(cells: Sequence[str]) -> bool:
    """0, 1, 2, ... or 1, 2, 3, ..."""
    whole = all(map(plain, cells)) and cells[0] in ("0", "1")
    return whole and all(int(b) == int(a) + 1 for a, b in pairwise(cells))


_NO_HEADER = "; nor is the line a header, since it holds numbers or missing cells, too"


def _ambiguous(path: Path, line: int, first: Sequence[str]) -> InvalidDataError:
    shown = ",".join(first)
    return InvalidDataError(
        f"{path}, line {line}, column 1: cannot tell whether {shown if len(shown) < 60 else shown[:57] + '...'!r} is a "
        f"header or a row. If it is a header, put a letter before each number in it; "
        f"if it is a row, put a header line above it"
    )

"""Whether the first column of a table names its rows: if it is mostly text, or has no name and numbers them."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from thali.data.cell_text import Kind, code, is_missing, kind_of, plain
from thali.io.cells import Place, cell_error, names_error


def are_mostly_text(heads: Sequence[str]) -> bool:
    """Tell whether more than half of the cells are text, not numbers in any form nor missing. NA may be either."""
    cells = [head for head in heads if head.strip() != "NA"]
    return 2 * sum(kind_of(cell) is Kind.TEXT for cell in cells) > len(cells)


def are_codes(heads: Sequence[str]) -> bool:
    """Tell whether the cells are codes: digits alone, all of one length, some with zeros in front."""
    cells = [head.strip() for head in heads if not is_missing(head)]
    return any(map(code, cells)) and all(map(plain, cells)) and len({len(cell) for cell in cells}) == 1


def are_numbered(heads: Sequence[str]) -> bool:
    """Tell whether the cells are distinct whole numbers, as the index that pandas and R write has them."""
    cells = [head.strip() for head in heads]
    return all(map(plain, cells)) and len(set(cells)) == len(cells)


def count_the_rows(heads: Sequence[str]) -> bool:
    """Tell whether the cells are 0, 1, 2, ... or 1, 2, 3, ... to the end."""
    first = heads[0].strip()
    if len(heads) < 3 or first not in ("0", "1"):
        return False
    return all(head.strip() == str(i) for i, head in enumerate(heads, int(first)))


def name_rows(heads: Sequence[str], label: str | None) -> bool:
    """Tell whether the first column, with this header or none, names the rows."""
    return are_mostly_text(heads) or are_codes(heads) or (label in ("", "Unnamed: 0") and are_numbered(heads))


def checked_names(path: Path, heads: Sequence[str], place: Callable[[int], Place]) -> tuple[str, ...]:
    """The names of the rows, or an error at the first that is blank or was there before."""
    seen: dict[str, int] = {}
    for row, head in enumerate(heads):
        name = head.strip()
        if not name:
            raise names_error(path, place(row), "the name of a row is blank")
        if name in seen:
            raise names_error(path, place(row), f"the name {name!r:.60} is that of {place(seen[name]).row}, too")
        seen[name] = row
    return tuple(seen)


def check_numbers(path: Path, heads: Sequence[str], place: Callable[[int], Place]) -> None:
    """An error at the first cell that is not a number, in a first column that does not name the rows."""
    for row, head in enumerate(heads):
        if kind_of(head) in (Kind.TEXT, Kind.LIKE_NUMBER):
            raise cell_error(path, place(row), head, names=kind_of(head) is Kind.TEXT)


def same_form(label: str, names: Sequence[str]) -> bool:
    """Tell whether a label with a number in it has the form of most names: g1 that of g2, g17, ..."""
    form = _form(label)
    return any(c.isdigit() for c in label) and 2 * sum(_form(name) == form for name in names) > len(names)


def _form(text: str) -> str:
    return re.sub(r"\d+", "0", text.strip())

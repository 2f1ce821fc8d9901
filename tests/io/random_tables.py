"""Random text tables with a known truth: all that people and programs put into them, and what goes wrong there."""

import csv
import gzip
import io
import re
from dataclasses import dataclass, field

import numpy as np

from thali.data.cell_text import MISSING

PLAIN = ("", "NaN", "nan")  # missing, and nothing needs to be said
SPELLED = (
    "n/a",
    "NA",
    "N/A",
    "-",
    "--",
    "#N/A",
    "NULL",
    "null",
    "None",
    ".",
    "?",
    "#DIV/0!",
    "<NA>",
    " n/a ",
    "\u2212",
)
BAD = (
    "abc", "12,5", "1,234.5", "5%", "0x1f", "1_000", "inf", "-Infinity", "1e999", "1 000", "1\u202f000", "1.234.567",
    "yes", "2020-01-01", "<5", "$3", "(7)", "3.5 kg", "1e5x", "1+2j", "Na", "12:30", "5*", "1d5", "--5", "\u20135",
    "1.5;2",
)  # fmt: skip
NAMES = {
    "g": lambda i: f"g{i + 1}",
    "word": lambda i: (
        "alice",
        "bob",
        "carol",
        "dave",
        "eve",
        "frank",
        "grace",
        "heidi",
        "ivan",
        "judy",
        "NA",
        "o'hara",
    )[i],
    "date": lambda i: f"2020-01-{i + 1:02d}",
    "code": lambda i: f"{i + 7:03d}",
    "key": lambda i: f"{7 * i:02d}-x",
}


@dataclass
class Case:
    """A file, and what is true of it."""

    content: bytes
    suffix: str
    X: np.ndarray
    dim_names: tuple[str, ...] | None
    row_names: tuple[str, ...] | None
    spelled: dict[str, int]
    bad: tuple[int, int] | None = None  # the line and the column of what must be refused
    unclear: bool = False  # where line 1 cannot be told, a refusal is right as well
    about: list[str] = field(default_factory=list)


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n_rows, n_dims = int(rng.integers(4, 13)), int(rng.integers(1, 6))
    X = _values(rng, n_rows, n_dims)
    spelled: dict[str, int] = {}
    cells = [[_cell(rng, value, spelled) for value in row] for row in X]
    names, label = _row_names(rng, n_rows)
    dims = _dim_names(rng, n_dims)
    if dims and names and _is_text(dims[0]) and rng.random() < 0.1:  # an index, as pandas writes it
        names, label = tuple(map(str, rng.permutation(n_rows))), ""
    about = [f"rows {label!r}" if names else "no row names", f"dims {dims}"]
    first_line = 1
    lines = [[name, *row] for name, row in zip(names, cells, strict=True)] if names else cells
    bad = None
    if dims is not None:
        lines = [[label, *dims] if names else list(dims), *lines]
        first_line = 2
    unclear = (dims is None and names is not None) or (dims is not None and sum(map(_is_text, dims)) * 2 <= len(dims))
    if rng.random() < 0.5:
        bad = _spoil(rng, lines, first_line, names is not None, spelled, about)
    if bad is None and rng.random() < 0.05 and len(lines[0]) > 1:
        lines, bad = [[";".join(cell.replace(".", ",") for cell in line)] for line in lines], (0, 0)
    elif bad is None and dims is not None and rng.random() < 0.1:
        lines = [[*line, ""] for line in lines]
    content, suffix = _written(rng, lines, bad is None and len(lines[0]) > 1, about)
    read_dims = None
    if dims is not None:
        read_dims = tuple(name.strip() or f"column {i}" for i, name in enumerate(dims, 2 if names else 1))
    spelled = {text: n for text, n in spelled.items() if n}
    return Case(content, suffix, X, read_dims, names, spelled, bad, unclear, about)


def _values(rng, n_rows, n_dims):
    X = np.round(rng.normal(0, 30, (n_rows, n_dims)), 3)
    for d in range(n_dims):
        kind = rng.integers(6)
        if kind == 0:
            X[:, d] = rng.integers(-5, 40, n_rows)
        elif kind == 1:
            X[:, d] = rng.integers(0, 2, n_rows)
        elif kind == 2:
            X[:, d] = (np.arange(n_rows), 1001 + rng.permutation(n_rows))[rng.integers(2)]
    X[rng.random(X.shape) < rng.choice([0.0, 0.1, 0.3])] = np.nan
    for n in range(n_rows):  # a fit wants a cell in each row and dim
        if np.isnan(X[n]).all():
            X[n, rng.integers(n_dims)] = 1.5
    for d in range(n_dims):
        if np.isnan(X[:, d]).all():
            X[0, d] = 2.5
    return X


def _cell(rng, value, spelled):
    if np.isnan(value):
        text = str(rng.choice(PLAIN if rng.random() < 0.5 else SPELLED))
        if text not in PLAIN:
            spelled[text.strip()] = spelled.get(text.strip(), 0) + 1
        return text
    text = repr(float(value)).removesuffix(".0")
    form = rng.integers(12)
    if form == 0 and value < 0:
        return "\u2212" + text[1:]
    if form == 1:
        return f"{value:.6e}"
    if form == 2:
        return f" {text} "
    if form == 3:
        return f"\u00a0{text}"
    if form == 4 and value >= 0:
        return f"+{text}"
    if form == 5:
        return text.translate({ord("0") + i: 0xFF10 + i for i in range(10)})  # full-width digits
    if form == 6 and value in (0, 1):
        return ("False", "TRUE")[int(value)]
    return text


def _row_names(rng, n_rows):
    if rng.random() < 0.5:
        return None, ""
    kind = str(rng.choice(list(NAMES)))
    if kind == "word" and n_rows > 12:
        kind = "g"
    return tuple(NAMES[kind](i) for i in range(n_rows)), str(rng.choice(["id", "gene", "", "what", "no. of case"]))


def _dim_names(rng, n_dims):
    kind = rng.integers(8)
    if kind < 2:
        return None
    dims = rng.choice(
        ["height", "x", "Na", "K", "a b", "dim, 3", "m [kg]", '"q"', "T1"], n_dims, replace=False
    ).tolist()
    if kind == 2 and n_dims > 2:
        dims[int(rng.integers(1, n_dims))] = ""
    if kind == 3 and n_dims > 1:
        return tuple(str(1990 + i) for i in range(n_dims))
    if kind == 4 and n_dims > 1:
        return tuple(str(i) for i in range(n_dims))
    return tuple(dims)


def _is_text(name):
    return bool(re.search("[a-z]", name, re.IGNORECASE))


def _spoil(rng, lines, first_line, named, spelled, about):
    """Put one thing into the table that must be refused; return its line and column (0 for any)."""
    n_lines, width = len(lines), len(lines[0])
    row = int(rng.integers(first_line - 1, n_lines))
    column = int(rng.integers(1 if named else 0, width))
    kind = rng.choice(["cell", "cell", "cell", "cell", "short", "long", "units", "comment", "name", "repeat"])
    about.append(str(kind))
    if kind == "repeat" and first_line == 2 and width - named > 1 and all(map(_is_text, lines[0][-2:])):
        lines[0][-1] = lines[0][-2]
        return 1, width
    if kind in ("cell", "repeat") or (kind == "name" and not (named and re.search(r"\D|^0\d", lines[1][0]))):
        if first_line == 1 and row == 0 and width - named < 2:
            row = 1  # a text above a single column of numbers is its header, whoever put it there
        text = str(rng.choice(BAD))
        about.append(repr(text))
        lines[row][column] = text
        return row + 1, column + 1
    if kind == "short":
        row = max(row, 1)
        del lines[row][-1]
        if not lines[row]:
            lines[row].append("abc")
            return row + 1, 1
        return row + 1, 0
    if kind == "long":
        row = max(row, 1)
        lines[row].append("5")
        return row + 1, 0
    if kind == "units":
        at = first_line
        lines.insert(at - 1 if first_line > 1 else 1, [*(["u"] if named else []), *["kg"] * (width - named)])
        return (at if first_line > 1 else 2), 2 if named else 0
    if kind == "comment":
        lines.insert(max(row, 1), ["# made by hand", *["x"] * (width - 1)])
        return max(row, 1) + 1, 0
    row = max(row, first_line)
    lines[row][0] = lines[row - 1][0] if rng.random() < 0.5 else ""
    return row + 1, 1


def _written(rng, lines, may_have_gaps, about):
    suffix = str(rng.choice([".csv", ".tsv", ".txt", ".csv.gz"]))
    delimiter = "," if "csv" in suffix else "\t"
    end = str(rng.choice(["\n", "\r\n", "\r"], p=[0.6, 0.3, 0.1]))
    quoting = csv.QUOTE_ALL if rng.random() < 0.2 else csv.QUOTE_MINIMAL
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(lines)
    content = text.getvalue()
    if may_have_gaps and rng.random() < 0.1:
        content = content.replace(end, end + end, 2)
    if rng.random() < 0.2:
        content = content.removesuffix(end)
    elif rng.random() < 0.2:
        content += 2 * end
    data = (b"\xef\xbb\xbf" if rng.random() < 0.2 else b"") + content.encode()
    about.append(content)
    return (gzip.compress(data, mtime=0) if suffix.endswith(".gz") else data), suffix


def misreading(case, table):
    """What is wrong with a table that was read, in words; nothing if it is right."""
    if case.bad:
        return f"not refused: {case.bad}"
    if table.dim_names != case.dim_names:
        told = any("first line" in doubt for doubt in table.doubts)
        if not (told and case.unclear):
            return f"dims {table.dim_names}"
        return ""  # a header of numbers, read as a row and announced
    if table.row_names != case.row_names:
        return f"row names {table.row_names}"
    if not np.array_equal(table.X, case.X, equal_nan=True):
        return f"X {table.X}"
    said = "; ".join(table.reading)
    if ("is the header" in said) != (case.dim_names is not None) or ("names the rows" in said) != bool(case.row_names):
        return f"said {said}"
    wrong = [text for text, n in case.spelled.items() if f"{n} cell{'s' * (n > 1)} {text!r}" not in said]
    return f"said {said}" if wrong or (not case.spelled and "missing" in said) else ""


def wrong_refusal(case, message):
    """What is wrong with a refusal, in words; nothing if it is right."""
    where = re.search(r"line (\d+)", message)
    column = re.search(r"column (\d+)", message)
    if where is None or column is None:
        return f"no line or no column: {message}"
    if case.bad is None:
        return "" if case.unclear and where[1] == "1" else f"refused: {message}"
    line, wanted = case.bad
    if not line:
        return ""
    if case.unclear and where[1] == "1":
        return ""
    if int(where[1]) != line or (wanted and int(column[1]) != wanted):
        return f"refused at {where[1]}, {column[1]} instead of {case.bad}: {message}"
    return ""


assert all(text.strip().lower() in MISSING for text in SPELLED)

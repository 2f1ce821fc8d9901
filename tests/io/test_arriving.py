"""Rows that arrive in pieces: which pieces makes no difference, and every bad line is told with its number."""

import itertools
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from thali.data.cell_text import number
from thali.errors import InvalidDataError
from thali.io import read_table
from thali.io.arriving import rows as arriving
from thali.io.arriving.json_rows import json_rows
from thali.io.arriving.plain_rows import plain_rows
from thali.io.arriving.rows import ArrivingRows, BadLine, Form, Rows

SOURCE = Path("standard input")


def read(text: bytes | str, size: int = 2**20, **how) -> tuple[ArrivingRows, list]:
    """What comes of a text in pieces of this size."""
    text = text.encode() if isinstance(text, str) else text
    reader = ArrivingRows(SOURCE, **how)
    found = [one for i in range(0, len(text), size) for one in reader.feed(text[i : i + size])]
    return reader, found + reader.end()


def by_line(found: list) -> list[tuple]:
    """The numbers of each line, or why it has none, in the order in which they came."""
    lines: list[tuple] = []
    for one in found:
        if isinstance(one, Rows):
            names = one.names or [None] * len(one.X)
            lines += [(int(n), *row, name) for n, row, name in zip(one.lines, one.X.tolist(), names, strict=True)]
        else:
            lines.append((one.line, *one[1:]))
    return [tuple("NaN" if cell != cell else cell for cell in line) for line in lines]


def numbers(found: list) -> np.ndarray:
    return np.concatenate([one.X for one in found if isinstance(one, Rows)])


def bad(found: list) -> dict[int, str]:
    return {one.line: one.why for one in found if isinstance(one, BadLine)}


TABLE = (
    b'\xef\xbb\xbfa,b,c\n1,2,3\r\n4,,6\nx,1,2\n1,2\n\n1,inf,3\n1,2,1e200\n\xff\xfe,1,2\n"q,1,2\n1,\0,2\n7,8,9\nNA,1,2\n'
    b"1e999,1,1\n1,2,3,4\n" + b"0.5,-1e-3,nan\n" * 40 + b"5,true,-\n1,2,3"
)


@pytest.mark.parametrize("size", [1, 7, 64, 10**6])
def test_pieces_make_no_difference(size):
    reader, found = read(TABLE, size)
    assert by_line(found) == by_line(read(TABLE)[1])
    assert (reader.dim_names, reader.n_dims) == (("a", "b", "c"), 3)
    assert reader.spelt() == "1 cell '-' and 1 cell 'NA'"


def test_each_bad_line_is_told_with_its_number_and_why():
    _, found = read(TABLE)
    why = {
        4: "expected a number, found 'x'",
        5: "expected 3 cells, as in the lines before, found 2",
        6: "the line is empty",
        7: "infinite or too large",
        8: "infinite or too large",
        9: "not UTF-8",
        10: "quotes",
        11: "NUL byte",
        14: "infinite or too large",
        15: "expected 3 cells, as in the lines before, found 4",
        57: "has no end",
    }
    told = bad(found)
    assert told.keys() == why.keys()
    for line, words in why.items():
        assert words in told[line]
        assert told[line].startswith(f"standard input, line {line}")
    kept = [line for line in TABLE.splitlines(keepends=True) if line[:1] not in b'x"\xff\n' and b"\0" not in line]
    alone = b"".join(line for line in kept if line.count(b",") == 2 and b"inf" not in line and b"1e200" not in line)
    alone = alone.replace(b"1e999,1,1\n", b"").removesuffix(b"1,2,3")
    np.testing.assert_array_equal(numbers(found), numbers(read(alone)[1]))


CELLS = (
    "1",
    "-2.5",
    "",
    "nan",
    "NaN",
    "NA",
    "1e5",
    "1e",
    "-",
    ".",
    "+3",
    ".5",
    "1_0",
    "x",
    "1e400",
    "true",
    " 7 ",
    "1 2",
)


def test_lines_read_together_say_what_they_say_alone(rng, monkeypatch):
    """Whole blocks go through another parser; which lines are its neighbours must not change a line."""
    pool = [",".join(rng.choice(CELLS, 3, p=_mostly_plain())) for _ in range(600)]
    text = "a,b,c\n" + "\n".join(pool) + "\n"
    together = by_line(read(text)[1])
    monkeypatch.setattr(arriving, "plain_rows", lambda text, n: None)
    assert by_line(read(text)[1]) == together
    assert sum(len(line) == 5 for line in together) > 100  # rows, with their line and no name


def _mostly_plain() -> np.ndarray:
    weights = np.full(len(CELLS), 0.004)
    weights[:2] = (1 - weights[2:].sum()) / 2
    return weights


def test_a_plain_number_is_what_it_is_in_a_table():
    """Short texts in the characters of numbers: all of them."""
    texts = ["".join(p) for n in (1, 2, 3) for p in itertools.product("0+-.eE ", repeat=n)]
    texts += ["nan", "1nan", "nannan", "1.7976931348623157e308", "9007199254740993", "0." + "0" * 350 + "1", "1e-400"]
    for text in texts:
        X = plain_rows(f"{text},1\n".encode(), 2)
        value = number(text)
        if X is not None:  # else it is read on its own
            assert value is not None, text
            assert X[0, 0] == value or (np.isnan(value) and np.isnan(X[0, 0])), text


def test_blocks_are_rounded_to_the_nearest(rng):
    values = rng.integers(0, 2**62, 20_000).view(np.float64)
    size = np.abs(values)
    values = values[(size < 1e150) & (size > 2.3e-308)][: 1000 * 5].reshape(-1, 5)
    text = "\n".join(",".join(map(repr, row)) for row in values.tolist()) + "\n"
    X = plain_rows(text.encode(), 5)
    assert X is not None
    np.testing.assert_array_equal(X, values)
    assert plain_rows(b"1,5e-324\n", 2) is None  # too small for the compiled reader
    assert numbers(read("1,5e-324\n" * 50, header=False)[1]).tolist() == [[1, 5e-324]] * 50


@pytest.mark.parametrize("names", [["a", "b", "c"], ["c", "a", "b"], ["a", 'é"\\', "c"]])
def test_plain_objects_may_have_any_order_and_spaces(names, rng):
    values = rng.standard_normal((50, 3))
    for how in ({}, {"separators": (",", ":")}, {"ensure_ascii": False}):
        rows = [dict(zip(names, row, strict=True)) for row in values.tolist()]
        text = "\n".join(json.dumps(row, **how) for row in rows) + "\n"
        np.testing.assert_array_equal(json_rows(text.encode(), names[::-1], 3), values[:, ::-1])
        assert json_rows((text + json.dumps(rows[0] | {"a": "x"}) + "\n").encode(), names, 3) is None


def test_a_table_reads_as_it_does_from_a_file(tmp_path, rng):
    X = rng.standard_normal((50, 3)).round(3)
    for header, names in (("id,u,v,w\n", True), ("u,v,w\n", False), ("", False)):
        lines = [",".join(map(str, row)) for row in X.tolist()]
        lines = [f"r{i},{line}" for i, line in enumerate(lines)] if names else lines
        path = tmp_path / "table.csv"
        path.write_text(header + "\n".join(lines) + "\n")
        table, (reader, found) = read_table(path), read(path.read_bytes(), 100)
        np.testing.assert_array_equal(numbers(found), table.X)
        assert reader.dim_names == table.dim_names
        told = [name for one in found for name in one.names or []]
        assert told == list(table.row_names or [])


def test_a_header_may_be_said():
    assert numbers(read("1,2\n3,4\n", header=True)[1]).tolist() == [[3, 4]]
    assert read("1,2\n3,4\n", header=True)[0].dim_names == ("1", "2")
    assert numbers(read("1990,1991\n3,4\n", header=False)[1]).tolist() == [[1990, 1991], [3, 4]]
    assert 1 in bad(read("a,b\n3,4\n", header=False)[1])
    with pytest.raises(InvalidDataError, match="header or a row"):
        read("a,1,2\nb,3,4\n")


def test_columns_are_matched_to_the_dims_of_a_fit():
    assert numbers(read("b,a\n1,2\n", dims=["a", "b"])[1]).tolist() == [[2, 1]]
    assert numbers(read("1,2\n", dims=["a", "b"])[1]).tolist() == [[1, 2]]
    assert numbers(read('{"b": 1, "a": 2}\n', dims=["a", "b"])[1]).tolist() == [[2, 1]]
    assert numbers(read('["b", "a"]\n[1, 2]\n', dims=["a", "b"])[1]).tolist() == [[2, 1]]
    for text, how in (("a,c\n1,2\n", {"dims": ["a", "b"]}), ("1,2\n", {"n_dims": 3}), ("a,a\n1,2\n", {})):
        with pytest.raises(InvalidDataError, match="line 1"):
            read(text, **how)


OBJECTS = [
    {"a": 1, "b": 2.5}, {"b": 3, "a": None}, {"b": 3}, {"a": 1, "b": "x"}, {"a": 1, "b": 2, "z": 3}, [1, 2], [1, 2, 3],
    5, {"a": [1], "b": 2}, {"a": True, "b": "1.5"}, {"a": 1e200, "b": 1}, {"a": 10**400, "b": 1}, "a", None, {},
]  # fmt: skip


@pytest.mark.parametrize("size", [3, 10**6])
def test_json(size, monkeypatch):
    text = (
        "\n".join(map(json.dumps, OBJECTS * 3))
        + '\n{"a":1,"a":2,"b":1}\n{"a":NaN,"b":1}\n[1,[2]\n'
        + "[" * 10**5
        + "\n"
    )
    text += '{"a": 1, "b": 2}\n' * 30 + '{"a": 1, "b": 2}'  # what is whole needs no end
    _, found = read(text, size)
    together = by_line(found)
    told = bad(found)
    assert {line: why for line, why in told.items() if line <= 15}.keys() == {4, 5, 7, 8, 9, 11, 12, 13, 14}
    for line, words in (
        (4, "column 2 ('b'): expected a number, found 'x'"), (5, "the name 'z' is not among those"),
        (7, "expected 2 cells, as in the lines before, found 3"), (8, "found 5"), (9, "found [1]"), (12, "too large"),
        (46, "the name 'a' is there twice"), (48, "it is no JSON"), (49, "nested too deeply"),
    ):  # fmt: skip
        assert words in told[line], told[line]
    assert [one.words for one in found if isinstance(one, arriving.Remark)] == [
        "standard input, line 3: it has no 'a': where that is so, the cell is missing",
        "standard input, line 15: it has no 'b': where that is so, the cell is missing",
    ]
    assert numbers(found)[-31:].tolist() == [[1, 2]] * 31
    monkeypatch.setattr(arriving, "json_rows", lambda *_: None)
    assert by_line(read(text, size)[1]) == together


@pytest.mark.parametrize("text", ["[1,2\n3,4],[5,6,7,8]\n", "[1,[2]\n[3],4]\n[1,2],[3,4]\n", '{"a":1\n"b":2}\n'])
def test_lines_of_json_do_not_share_cells(text):
    assert not any(isinstance(one, Rows) for one in read(text, form=Form.NDJSON)[1])


@pytest.mark.parametrize("text", ["1,2\n3,4\n5", '{"a": 1}\n{"a": 2', "[1]\n[2", ""])
def test_a_line_that_is_cut_off_is_not_taken(text):
    reader = ArrivingRows(SOURCE, header=False)
    found = reader.feed(text.encode())
    found += reader.end(cut_off=True)
    assert not bad(found)
    assert [one.line for one in found if isinstance(one, arriving.Remark)] == [text.count("\n") + 1][: len(text)]
    assert sum(len(one.X) for one in found if isinstance(one, Rows)) == text.count("\n")


def test_memory_is_bounded_whatever_comes():
    """A line of 100 MB without an end, and lines that are each too long."""
    piece = b"1," * 2**19
    reader = ArrivingRows(SOURCE, header=False, longest=10**6)
    reader.feed(b"1,2\n" * 30)
    tracemalloc.start()
    for _ in range(100):
        assert reader.feed(piece) == []
    found = reader.feed(b"\n3,4\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20
    assert by_line(found)[1:] == [(32, 3, 4, None)]
    assert f"{len(piece) * 100} bytes" in bad(found)[31]
    text = b"1,2\n" * 30 + (b"9" * 200 + b"\n1,2\n") * 3 + b"9" * 200
    assert bad(read(text, longest=100, header=False)[1]).keys() == {31, 33, 35, 37}


def test_garbage_is_told_line_by_line(rng):
    text = b"1,2\n3,4\n" + rng.integers(0, 256, 50_000, dtype=np.uint8).tobytes() + b"\n5,6\n"
    _, found = read(text, 999)
    n_lines = text.count(b"\n")
    assert len(bad(found)) >= n_lines - 5
    rows = numbers(found)
    assert rows[:2].tolist() == [[1, 2], [3, 4]]
    assert rows[-1].tolist() == [5, 6]

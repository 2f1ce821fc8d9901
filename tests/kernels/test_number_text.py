"""The compiled reader of numbers: as Python's `float` reads them, with mutants."""

import inspect

import numpy as np
import pytest
from reference import number_text as twin

from thali.io.arriving.plain_rows import _of_arrays, _of_objects, _of_table, _powers
from thali.kernels import number_text as kernel

TABLE = (
    "1,2", "-1.5e3, .5", "1.,+3", ",", " ,nan", "NaN,NAN", "1", "1,2,3", "x,1", "1 2,3",
    "nanx,1", "Nan,1", "-nan,1", "1e,1",
    "1e+,1", ".,1", "-,1", "1e5 , 2 ", "00012,0.10", "-0,-0.0", "0e9,0e-999", "1_0,1",
    "1.2.3,1", "2-3,1", "1e400,1",
)  # fmt: skip
ARRAYS = (
    "[1,2]", " [ 1 , 2 ] ", "[null,NaN]", "[-0,-0.0]", "[1e5,1E-5]", "[01,2]", "[+1,2]", "[.5,2]", "[1.,2]", "[1,]",
    "[,1]", "[1,nan]", "[1,2", "[1,2]]", "[1,2,3]", "[nul,1]", "[nulll,1]", "[1.e5,2]", "[-,1]", "[0.5,10]",
    "{1,2}", "[-01,1]", "[NAN,1]",
)  # fmt: skip
OBJECTS = ('{"a":1,"b":2}', ' { "a" : 1 , "b" : null } ', '{"b":1,"a":2}', '{"a":1,"a":2}', '{"a":1}', '{"a" 1,"b":2}')


def read(module, lines, tokens, strict, n_columns=2):
    """(the first line that is refused, the numbers before it)."""
    text = np.frombuffer("".join(line + "\n" for line in lines).encode(), np.uint8)
    X = np.full((len(lines), n_columns), 7.0)
    n = module.read_lines(text, len(lines), *tokens, strict, *_powers(), X, X.view(np.uint64))
    return n, X[:n]


def hard_numbers(rng) -> list[str]:
    """Of any size, halfway between two doubles and beside, with more digits than fit."""
    doubles = rng.integers(0, 2**62, 3000).view(np.float64)
    doubles = doubles[(doubles > 1e-300) & (doubles < 1e150)]
    found = [repr(value) for value in doubles.tolist()]
    for value in rng.integers(2**53, 2**60, 500).tolist():
        found += [str(value), f"{value}e-7", f"{value / 2**20:.30f}", f"{value}00000000000000000000000.5"]
    for whole in range(2**52, 2**52 + 30):  # ties: between two whole doubles, and a little beside, which is refused
        tie = 2 * whole + 1
        found += [str(tie), f"{tie}.0e0", f"{tie}0e-1", f"{tie}.0000000000000000001"]
    found += [f"{float(whole) / 1000:.17g}" for whole in rng.integers(-(10**18), 10**18, 500)]
    return [
        *found,
        "9007199254740993",
        "1e23",
        "8.442911973260991817129021e15",
        "0",
        "0.000",
        "000000000000000000000001.25",
    ]


def altered(old: str, new: str) -> dict:
    """The file in plain Python, with a piece of it replaced."""
    source = inspect.getsource(kernel)
    assert source.count(old) == 1
    names: dict = {}
    source = source.replace("from thali.kernels._jit import jit", "jit = lambda function: function")
    exec(source.replace(old, new), names)
    return names


def differ(read_number, lines) -> list[str]:
    """What is not refused and has other bits than `float` gives."""
    wrong, n_refused = [], 0
    with np.errstate(over="ignore"):
        for line in lines:
            codes = np.frombuffer(line.encode() + b"\n", np.uint8)
            end, bits = read_number(codes, 0, False, *_powers())
            n_refused += end < 0
            if end >= 0 and (end, int(bits)) != (len(line), twin.bits_of(float(line))):
                wrong.append(line)
    assert n_refused < 0.01 * len(lines)
    return wrong


def far_apart(nearest_bits, rng) -> bool:
    """Whether w 10^q is not always what `float` makes of it."""
    w = rng.integers(2**53, 2**64, 20000, dtype=np.uint64)
    pairs = list(zip(w, rng.integers(-300, 280, len(w)).tolist(), strict=True))
    pairs += [(np.uint64(2 * whole + 1), 0) for whole in range(2**52, 2**52 + 40)]  # halfway between two doubles
    with np.errstate(over="ignore"):
        return any(int(nearest_bits(*pair, *_powers())) != twin.nearest_bits(*pair, None, None) for pair in pairs)


def test_numbers_are_rounded_as_float_does(rng):
    assert differ(kernel.read_number, hard_numbers(rng)) == []
    assert not far_apart(kernel.nearest_bits, rng)
    same = altered("_EDGE = _U(0x1FF)", "_EDGE = _U(511)")
    assert not far_apart(same["nearest_bits"], rng)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(mantissa + (mantissa & _ONE))", "mantissa"),  # cut off
        ("-4 <= q <= 23", "q == 99"),  # ties away from zero
        ("high & _EDGE == _EDGE", "high == _NONE"),  # the lower half of the table is left out
    ],
)
def test_mutants_of_the_rounding_are_found(old, new, rng):
    assert far_apart(altered(old, new)["nearest_bits"], rng)


@pytest.mark.parametrize(
    ("old", "new"),
    [("n_more == 0 or", "True or"), ("q = n_more - n_part", "q = -n_part"), ("bits |= sign", "bits |= _NONE")],
)
def test_mutants_of_the_digits_are_found(old, new, rng):
    lines = [*hard_numbers(rng), "-2.5"]
    assert differ(altered(old, new)["read_number"], lines)


@pytest.mark.parametrize(
    ("lines", "tokens", "strict"),
    [(TABLE, _of_table(2), False), (ARRAYS, _of_arrays(2), True), (OBJECTS, _of_objects(("a", "b"), False), True)],
)
def test_lines_are_taken_as_by_the_twin(lines, tokens, strict):
    for line in lines:
        for text in ([line], [line, lines[0]], [lines[0], line]):
            found, wanted = read(kernel, text, tokens, strict), read(twin, text, tokens, strict)
            if "1e400" in line or "e-999" in line:  # beyond the doubles: what `float` makes of it is infinite or zero
                continue
            assert found[0] == wanted[0], text
            np.testing.assert_array_equal(found[1].view(np.uint64), wanted[1].view(np.uint64), err_msg=str(text))


def test_single_parts_equal_their_twins(rng):
    a, b = rng.integers(0, 2**64, (2, 200), dtype=np.uint64)
    for x, y in zip(a, b, strict=True):
        assert tuple(map(int, kernel.wide_product(x, y))) == twin.wide_product(x, y)
    for w, q in zip(a, rng.integers(-300, 280, 200).tolist(), strict=True):
        assert int(kernel.nearest_bits(w, q, *_powers())) == twin.nearest_bits(w, q, *_powers())
    for text in (b"123456789012345678901234,", b"0.00012,", b"1234567890.12345678901,", b"5,"):
        codes, end = np.frombuffer(text, np.uint8), len(text) - 1
        assert tuple(map(int, kernel.first_digits(codes, 0, end))) == twin.first_digits(codes, 0, end)
        assert tuple(map(int, kernel.read_number(codes, 0, False, *_powers()))) == twin.read_number(
            codes, 0, False, *_powers()
        )

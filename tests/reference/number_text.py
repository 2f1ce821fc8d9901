"""Twin of thali.kernels.number_text: whole numbers of any size, and Python's own `float`."""

import re
import struct

import numpy as np

LEAST, MOST = -330, 290
CELL = {
    False: re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"),
    True: re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?"),
}


def bits_of(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def wide_product(a, b):
    product = int(a) * int(b)
    return product >> 64, product & (2**64 - 1)


def nearest_bits(w, q, upper, lower):
    value = float(f"{int(w)}e{int(q)}")
    return bits_of(value) if LEAST <= q <= MOST and 2.3e-308 < value < np.inf else 0


def first_digits(text, begin, end):
    digits = bytes(text[begin:end]).replace(b".", b"").lstrip(b"0")
    return int(digits[:19] or b"0"), max(len(digits) - 19, 0)


def read_number(text, i, strict, upper, lower):
    found = CELL[bool(strict)].match(bytes(text), i)
    if found is None:
        return -1, 0
    value = float(found.group())
    if strict and set(found.group()) <= set(b"-0"):
        value = 0.0
    return found.end(), bits_of(value)


def read_lines(text, n_rows, tokens, ends, first, strict, upper, lower, values, bits):
    n_columns = values.shape[1]
    words = [bytes(tokens[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    for row, line in enumerate(bytes(text).split(b"\n")[:n_rows]):
        for k in range(n_columns + 1):
            for word in words[first[k] : first[k + 1]]:
                line = line.lstrip(b" ")
                if not line.startswith(word):
                    return row
                line = line[len(word) :]
            line = line.lstrip(b" ")
            if k == n_columns:
                break
            missing = re.match(rb"NaN|null" if strict else rb"nan|NaN|NAN", line)
            blank = not strict and n_columns > 1 and line[:1] in (b"", b",")
            if missing or blank:
                values[row, k] = np.nan
                line = line[missing.end() if missing else 0 :]
                continue
            i, found = read_number(line, 0, strict, upper, lower)
            if i < 0:
                return row
            bits[row, k], line = found, line[i:]
        if line:
            return row
    return n_rows

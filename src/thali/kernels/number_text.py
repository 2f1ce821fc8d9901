"""Numbers in lines of text, to the nearest double, as `float` reads them.

w 10^q with w < 2^64 is w times a table of 10^q to 128 bits, rounded once (Lemire 2021, "Number parsing at a gigabyte
per second", whose bounds show that 128 bits suffice). What is not plain is refused: it is read by others.
"""

import numpy as np

from thali.kernels._jit import jit

_U = np.uint64
_LOW, _HALF, _TOP = _U(0xFFFFFFFF), _U(32), _U(1 << 63)
_TEN, _ONE, _NONE = _U(10), _U(1), _U(0)
_MANTISSA = _U(1 << 52)
_EXACT = _U(1 << 53)
_EDGE = _U(0x1FF)  # bits below those that are kept, with two more: if all are set, the rest of the product may carry
LEAST, MOST = -330, 290  # powers of ten in the table
_DIGITS = 19  # that fit in w
_SPACE, _NEWLINE, _COMMA = ord(" "), ord("\n"), ord(",")
_PLUS, _MINUS, _DOT, _ZERO, _NINE, _E, _SMALL_E = ord("+"), ord("-"), ord("."), ord("0"), ord("9"), ord("E"), ord("e")
_N, _SMALL_N, _A, _SMALL_A, _SMALL_U, _SMALL_L = ord("N"), ord("n"), ord("A"), ord("a"), ord("u"), ord("l")


def _wide_product(a, b):
    """(upper, lower) half of the product of two numbers of 64 bits."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    low, left, right = a0 * b0, a1 * b0, a0 * b1
    middle = (low >> _HALF) + (left & _LOW) + (right & _LOW)
    upper = a1 * b1 + (left >> _HALF) + (right >> _HALF) + (middle >> _HALF)
    return upper, (middle << _HALF) | (low & _LOW)


def _nearest_bits(w, q, upper, lower):
    """The double nearest to w 10^q as 64 bits, w > 0; 0 if it is no normal number, or cannot be told.

    upper[i], lower[i]: the halves of 10^(i + LEAST), its first bit the highest.
    """
    at = min(max(q, LEAST), MOST) - LEAST
    shift = 0
    for step in (32, 16, 8, 4, 2, 1):
        by = step * (w >> _U(64 - step) == _NONE)  # without a branch, which nothing could predict
        w = w << _U(by)
        shift += by
    high, low = wide_product(w, upper[at])
    if high & _EDGE == _EDGE:
        more, _ = wide_product(w, lower[at])
        low = low + more
        if low < more:
            high = high + _ONE
    first = high >> _U(63)
    drop = first + _U(9)
    mantissa = high >> drop
    exponent = ((152170 + 65536) * q >> 16) + 63 + np.int64(first) - shift + 1023
    if low <= _ONE and -4 <= q <= 23 and mantissa & _U(3) == _ONE and mantissa << drop == high:
        mantissa = mantissa - _ONE  # halfway between two doubles: to the even one
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    if mantissa >= _EXACT:
        mantissa = _MANTISSA
        exponent += 1
    is_normal = LEAST <= q <= MOST and 1 <= exponent <= 2046
    return (mantissa & (_MANTISSA - _ONE)) | (_U(exponent) << _U(52)) if is_normal else _NONE


def _first_digits(text, begin, end):
    """(the first digits of a number as far as they fit, how many more there are); a point may be among them."""
    w, n_kept, n_more = _NONE, 0, 0
    for i in range(begin, end):
        if text[i] == _DOT:
            continue
        if n_kept < _DIGITS:
            w = w * _TEN + _U(text[i] - _ZERO)
            if w > _NONE:
                n_kept += 1
        else:
            n_more += 1
    return w, n_more


def _read_number(text, i, strict, upper, lower):
    """(where the number that begins at i ends, its bits); (-1, 0) if there is no plain one. strict: as JSON has it.

    It has one way out: with several, the counts of references to the arrays take as long as the digits.
    """
    is_negative = text[i] == _MINUS
    sign = _U(is_negative) << _U(63)
    i += is_negative or (text[i] == _PLUS and not strict)
    w, begin = _NONE, i
    while _ZERO <= text[i] <= _NINE:
        w = w * _TEN + _U(text[i] - _ZERO)
        i += 1
    n_whole, n_part = i - begin, 0
    is_whole = text[i] != _DOT
    if not is_whole:
        i += 1
        part = i
        while _ZERO <= text[i] <= _NINE:
            w = w * _TEN + _U(text[i] - _ZERO)
            i += 1
        n_part = i - part
    n_more = 0
    if n_whole + n_part > _DIGITS:
        w, n_more = first_digits(text, begin, i)
    is_number = n_whole + n_part > 0
    if strict:
        is_number = n_whole == 1 or (n_whole > 1 and text[begin] != _ZERO)
        is_number = is_number and (is_whole or n_part > 0)
    q = n_more - n_part
    if text[i] == _E or text[i] == _SMALL_E:
        is_whole = False
        i += 1
        is_below = text[i] == _MINUS
        i += is_below or text[i] == _PLUS
        first, power = i, 0
        while _ZERO <= text[i] <= _NINE:
            power = min(10 * power + int(text[i]) - _ZERO, 100000)
            i += 1
        is_number = is_number and i > first
        q += -power if is_below else power
    bits = _NONE
    if w == _NONE:
        bits = _NONE if strict and is_whole else sign  # a whole number has no negative zero
    elif is_number:
        bits = nearest_bits(w, q, upper, lower)
        is_number = bits != _NONE and (n_more == 0 or nearest_bits(w + _ONE, q, upper, lower) == bits)
        bits |= sign
    return (i, bits) if is_number else (-1, _NONE)


def _read_lines(text, n_rows, tokens, ends, first, strict, upper, lower, values, bits):
    """Fill values (n_rows, n_columns) from lines of text, which ends in a newline. Returns the number of the first line
    that is not plain, n_rows if there is none.

    Before the number of column k come the tokens first[k] .. first[k + 1] - 1, after the last one those of k =
    n_columns; token t ends at ends[t] of `tokens` and begins where the one before ends. Spaces may stand anywhere
    between them. NaN is missing; `null`, too, if strict, else a blank cell of several. bits: the memory of values as
    whole numbers. Cost O(length of the text).
    """
    n_columns = values.shape[1]
    i = 0
    for row in range(n_rows):
        for k in range(n_columns + 1):
            for t in range(first[k], first[k + 1]):
                while text[i] == _SPACE:
                    i += 1
                for j in range(ends[t - 1] if t > 0 else 0, ends[t]):
                    if text[i] != tokens[j]:
                        return row
                    i += 1
            while text[i] == _SPACE:
                i += 1
            if k == n_columns:
                break
            if text[i] == _N or text[i] == _SMALL_N:
                is_big, middle = text[i] == _N, text[i + 1]
                if strict and not is_big:
                    if not (middle == _SMALL_U and text[i + 2] == _SMALL_L and text[i + 3] == _SMALL_L):
                        return row
                    i += 4
                else:
                    is_nan = middle == _SMALL_A and text[i + 2] == text[i]
                    if not is_nan and not (is_big and not strict and middle == _A and text[i + 2] == _N):
                        return row
                    i += 3
                values[row, k] = np.nan
            elif not strict and n_columns > 1 and (text[i] == _COMMA or text[i] == _NEWLINE):
                values[row, k] = np.nan
            else:
                i, found = read_number(text, i, strict, upper, lower)
                if i < 0:
                    return row
                bits[row, k] = found
        if text[i] != _NEWLINE:
            return row
        i += 1
    return n_rows


wide_product = jit(_wide_product)
nearest_bits = jit(_nearest_bits)
first_digits = jit(_first_digits)
read_number = jit(_read_number)
read_lines = jit(_read_lines)

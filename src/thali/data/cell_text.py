"""What the text of a cell says: a number, nothing, or something else.

One rule for text files, text columns of Parquet files, data frames and arrays of objects. Spaces around the text do not
matter, and neither does its case, except that Na is sodium.
"""

import re
from collections.abc import Mapping
from enum import Enum

__all__ = ["MISSING", "Kind", "code", "hint", "is_missing", "kind_of", "listed", "number", "plain", "plain_missing"]

_NAN = frozenset({"nan", "+nan", "-nan"})
_WORDS = {
    "na",
    "n/a",
    "n.a.",
    "<na>",
    "#na",
    "#n/a",
    "#n/a n/a",
    "nat",
    "none",
    "null",
    "(null)",
    "nil",
    "\\n",
    "missing",
}
_SIGNS = {"?", ".", "..", "-", "--", "---", "\u2013", "\u2014", "\u2212"}  # the last: two dashes, the sign for minus
_FAILED = {"#div/0!", "#value!", "#num!", "#null!", "#ref!", "#name?"}  # formulas of a spreadsheet that gave nothing
_INDEFINITE = {"1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"}  # as some C libraries print NaN

MISSING = frozenset({"", *_NAN, *_WORDS, *_SIGNS, *_FAILED, *_INDEFINITE})
"""In lower case: all that means a missing cell."""

_BOOLS = {"true": 1.0, "false": 0.0}


class Kind(Enum):
    """What a cell holds."""

    NUMBER = "a number"
    MISSING = "nothing"
    LIKE_NUMBER = "a number in a form that is not read"
    TEXT = "text"


def is_missing(text: str) -> bool:
    """Whether a cell with this text is a missing one."""
    text = text.strip()
    return text.lower() in MISSING and text != "Na"


def plain_missing(text: str) -> bool:
    """Whether nobody can doubt that the cell is missing: it is blank or NaN."""
    text = text.strip().lower()
    return not text or text in _NAN


def number(text: str) -> float | None:
    """The number in a cell, NaN where it is missing, infinity where it says so, None where it is anything else."""
    if is_missing(text):
        return float("nan")
    text = text.strip()
    if text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if text[0] == "\u2212":  # the sign for minus, rather than the hyphen
        text = "-" + text[1:]
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


_DIGITS = r"[+\-\u2212]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:e[+\-\u2212]?\d+)?"
_FORMS = tuple(
    (re.compile(form, re.IGNORECASE), words)
    for form, words in (
        (
            r"[+\-\u2212]?\d{1,3}(?:([,.'’_\s])\d{3})(?:\1\d{3})*(?:[.,]\d+)?",
            "separators of thousands, or a decimal comma",
        ),
        (r"[+\-\u2212]?\d*,\d+(?:e[+\-]?\d+)?", "a decimal comma"),
        (r"[+\-\u2212]?\d[\d.,+\-\s]*;[\d.,+\-\s;]*", "semicolons between numbers"),
        (rf"{_DIGITS}\s*[%‰]", "a percent sign"),
        (rf"[$€£¥₹]\s*{_DIGITS}|{_DIGITS}\s*[$€£¥₹]", "a sign of currency"),
        (rf"[<>≤≥~≈±]=?\s*{_DIGITS}", "a bound instead of a number"),
        (rf"\({_DIGITS}\)", "brackets around a number"),
        (r"[+\-]?0x[0-9a-f]+", "a hexadecimal number"),
        (rf"{_DIGITS}\s*[*†‡]+", "a footnote at a number"),
        (rf"{_DIGITS}\s*±\s*{_DIGITS}", "two numbers in a cell"),
        (r"[+\-]?\d*[.,]?\d+d[+\-]?\d+", "an exponent written with D"),
        (r"[+\-\u2012-\u2015\ufe63\uff0d]\s*\d+(?:[.,]\d+)?(?:e[+\-]?\d+)?", "an odd minus sign"),
        (r"[+\-\u2212]?\d+[.,]\d+\s*[a-zµμ°Ω²³/]+", "a unit after a number"),
        (
            rf"{_DIGITS}\s*(?:[kmµμ]?g|[kcmµμn]?m|[mµμ]?l|m?s|min|[kmg]?hz|m?v|°[cf]|mmhg|bpm|px|usd|eur)",
            "a unit after a number",
        ),
    )
)
_STARTS = "+-\u2212\u2012\u2013\u2014\u2015\ufe63\uff0d.,$€£¥₹<>≤≥~≈±("


def hint(text: str) -> str | None:
    """What keeps a text that is meant as a number from being read as one; None if it is not meant as one."""
    text = text.strip()
    if not text or not (text[0].isdigit() or text[0] in _STARTS):
        return None
    return next((words for form, words in _FORMS if form.fullmatch(text)), None)


def kind_of(text: str) -> Kind:
    if is_missing(text):
        return Kind.MISSING
    if number(text) is not None:
        return Kind.NUMBER
    return Kind.LIKE_NUMBER if hint(text) else Kind.TEXT


def plain(text: str) -> bool:
    """Whether a cell is a whole number of digits and nothing else, as a name may be: 7, 1990, not 7.0 or 7e3."""
    text = text.strip().removeprefix("-")
    return text.isascii() and text.isdigit()


def code(text: str) -> bool:
    """Whether a cell is a number with zeros in front, as codes have them: 007."""
    text = text.strip()
    return plain(text) and len(text) > 1 and text[0] == "0"


def listed(spellings: Mapping[str, int]) -> str:
    """7 cells 'n/a' and 1 cell '-': the most frequent first."""
    in_order = sorted(spellings.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{n} cell{'' if n == 1 else 's'} {text!r}" for text, n in in_order]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)

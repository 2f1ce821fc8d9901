"""docs/equations.md and the code agree: each formula names its code and test, each `eq:` mark has a row."""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEDGER = ROOT / "docs" / "equations.md"

HEADER = ["id", "source", "our form", "code", "test", "erratum"]
ID = re.compile(r"[A-Za-z][\w+-]*(?:\.[\w+-]+)+")  # such as IBP.class-prob
MARK = re.compile(r"\beq:\s*([^\s,;)]+(?:,\s*[^\s,;)]+\.[^\s,;)]+)*)")  # `eq: a.b` or `eq: a.b, c.d`


class Row(NamedTuple):
    id: str
    code: list[str]  # module.path:function
    test: list[str]  # tests/file.py or tests/file.py::name


# --- reading --------------------------------------------------------------------------------------


def cells(line: str) -> list[str]:
    r"""The cells of a table row; a bar inside a formula is written \|."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def items(cell: str) -> list[str]:
    return [item.strip() for item in cell.replace("`", "").split(",") if item.strip()]


def read_ledger(text: str) -> tuple[list[Row], list[str]]:
    """The rows of every table with the ledger's header, and complaints about rows that cannot be read."""
    rows: list[Row] = []
    found: list[str] = []
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        row = cells(line) if line.lstrip().startswith("|") else []
        if not row:
            inside = False
        elif row == HEADER:
            inside = True
        elif inside and not set("".join(row)) <= set("-: "):
            row[0] = row[0].replace("`", "")
            if len(row) != len(HEADER):
                found.append(f"line {number}: {len(row)} cells, not {len(HEADER)} (a bar in a formula is written \\|)")
            elif not ID.fullmatch(row[0]):
                found.append(f"line {number}: '{row[0]}' is no id such as IBP.class-prob")
            else:
                rows.append(Row(row[0], items(row[3]), items(row[4])))
    if not rows:
        found.append("no row found below | " + " | ".join(HEADER) + " |")
    found += [f"{id}: two rows" for id in {row.id for row in rows if [r.id for r in rows].count(row.id) > 1}]
    return rows, found


@cache
def marks(source: str) -> set[str]:
    """What follows `eq:` in the comments and strings of a source text."""
    found: set[str] = set()
    if "eq:" not in source:
        return found
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for match in MARK.finditer(token.string):
                found.update(item.strip().rstrip(".\"'`") for item in match.group(1).replace("`", "").split(","))
    return found


@cache
def defined(source: str) -> set[str]:
    """Every function, class, method ('Class.method') and assigned name at module level."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef))
        if isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


# --- checking -------------------------------------------------------------------------------------


def check_code(row: Row, sources: dict[str, str]) -> list[str]:
    """sources: dotted module name -> text."""
    found = [] if row.code else [f"{row.id}: names no code"]
    for place in row.code:
        module, _, function = place.partition(":")
        module = module if module.startswith("thali") else f"thali.{module}"
        if module not in sources:
            found.append(f"{row.id}: there is no module {module}")
        elif function not in defined(sources[module]):
            found.append(f"{row.id}: there is no {function or '(function)'} in {module}")
        elif row.id not in marks(sources[module]):
            found.append(f"{row.id}: no `# eq: {row.id}` in {module}")
    return found


def check_test(row: Row, tests: dict[str, str]) -> list[str]:
    """tests: path such as tests/test_x.py -> text."""
    found = [] if row.test else [f"{row.id}: names no test"]
    for place in row.test:
        path, *names = place.split("::")
        name = ".".join(names).partition("[")[0]
        if path not in tests:
            found.append(f"{row.id}: there is no file {path}")
        elif name and name not in defined(tests[path]):
            found.append(f"{row.id}: there is no {name} in {path}")
    return found


def check(ledger: str, sources: dict[str, str], tests: dict[str, str]) -> list[str]:
    rows, found = read_ledger(ledger)
    for row in rows:
        found += check_code(row, sources) + check_test(row, tests)
    ids = {row.id for row in rows}
    for module, source in sources.items():
        found += [f"{module}: eq: {mark} is not in the ledger" for mark in sorted(marks(source) - ids)]
    return found


# --- the library ----------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_ledger_and_code_agree() -> None:
    assert LEDGER.exists(), "docs/equations.md is missing"
    sources = {module_name(path): path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    tests = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")
    }
    found = check(LEDGER.read_text(encoding="utf-8"), sources, tests)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


# --- the checker can see --------------------------------------------------------------------------

TABLE = "| id | source | our form | code | test | erratum |\n|---|---|---|---|---|---|\n"
LINE = r"| IBP.prob | G 2006, (4) | $P(Z \| a)$ | `thali.ibp:prob` | `tests/test_ibp.py::test_prob` | none |" + "\n"
SOURCES = {"thali.ibp": "def prob():\n    return 1  # eq: IBP.prob\n"}
TESTS = {"tests/test_ibp.py": "def test_prob(): ...\n"}


def test_an_agreeing_ledger_passes() -> None:
    assert check(TABLE + LINE, SOURCES, TESTS) == []


def test_more_than_one_place_and_table_pass() -> None:
    second = LINE.replace("IBP.prob", "own.sum").replace("`thali.ibp:prob`", "ibp:Prior.sum, ibp:prob")
    source = 'class Prior:\n    def sum(self):\n        """The sum. eq: own.sum."""\n' + SOURCES["thali.ibp"]
    tests = "class TestIBP:\n    def test_prob(self): ...\n"
    second = second.replace("::test_prob", "::TestIBP::test_prob[2]")
    ledger = TABLE + LINE.replace("::test_prob", "") + "\n## Sums\n\n" + TABLE + second
    assert check(ledger, {"thali.ibp": source}, {"tests/test_ibp.py": tests}) == []


@pytest.mark.parametrize(
    ("ledger", "source", "complaint"),
    [
        ("", SOURCES["thali.ibp"], "no row found"),
        (LINE, SOURCES["thali.ibp"], "no row found"),
        (TABLE, SOURCES["thali.ibp"], "no row found"),
        (TABLE + LINE + LINE, SOURCES["thali.ibp"], "two rows"),
        (TABLE + LINE.replace("\\|", "|"), SOURCES["thali.ibp"], "7 cells"),
        (TABLE + LINE.replace("IBP.prob", "prob"), SOURCES["thali.ibp"], "is no id"),
        (TABLE + LINE.replace("`thali.ibp:prob`", ""), SOURCES["thali.ibp"], "names no code"),
        (TABLE + LINE.replace("thali.ibp:", "thali.ipb:"), SOURCES["thali.ibp"], "no module"),
        (TABLE + LINE.replace("ibp:prob", "ibp:odds"), SOURCES["thali.ibp"], "no odds in"),
        (TABLE + LINE.replace("ibp:prob", "ibp"), SOURCES["thali.ibp"], "no (function) in"),
        (TABLE + LINE, "def prob(): ...", "no `# eq: IBP.prob`"),
        (TABLE + LINE, "def prob(): ...  # eq: IBP.probability", "no `# eq: IBP.prob`"),
        (TABLE + LINE, SOURCES["thali.ibp"] + "# eq: IBP.other", "IBP.other is not in the ledger"),
        (TABLE + LINE, SOURCES["thali.ibp"] + "# eq: IBP.prob, IBP.other", "IBP.other is not in the ledger"),
        (TABLE + LINE, SOURCES["thali.ibp"] + '"""As in eq: nonsense."""', "nonsense is not in the ledger"),
        (TABLE + LINE.replace("`tests/test_ibp.py::test_prob`", "-"), SOURCES["thali.ibp"], "no file -"),
        (TABLE + LINE.replace("`tests/test_ibp.py::test_prob`", ""), SOURCES["thali.ibp"], "names no test"),
        (TABLE + LINE.replace("test_ibp.py", "test_x.py"), SOURCES["thali.ibp"], "no file tests/test_x.py"),
        (TABLE + LINE.replace("::test_prob", "::test_odds"), SOURCES["thali.ibp"], "no test_odds in"),
    ],
)
def test_a_disagreement_is_seen(ledger: str, source: str, complaint: str) -> None:
    found = check(ledger, {"thali.ibp": source}, TESTS)
    assert any(complaint in line for line in found), found

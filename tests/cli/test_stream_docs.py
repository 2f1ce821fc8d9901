"""The examples of the pages on streams: each is run as it stands, and says what stands below it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def commands(page: str) -> list[tuple[str, list[str]]]:
    """Each command with the lines that are shown of what it says."""
    found: list[tuple[str, list[str]]] = []
    is_shown = False
    for line in (DOCS / page).read_text().splitlines():
        is_shown = line.startswith("    $ ") or (is_shown and line.startswith("    "))
        if line.startswith("    $ "):
            found.append((line.removeprefix("    $ "), []))
        elif is_shown:
            found[-1][1].append(line.strip())
    return [one for one in found if "thali stream" in one[0] or "> rows.csv" in one[0]]


def as_shown(line: str) -> str:
    return ".*".join(map(re.escape, line.split("...")))


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("page", ["streams.md", "command-line.md"])
def test_commands(page, tmp_path):
    shown = commands(page)
    assert len(shown) >= {"streams.md": 6, "command-line.md": 1}[page]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, lines in shown:
        result = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=1000,
        )
        said = (result.stdout + result.stderr).splitlines()
        for line in lines:
            assert line == "..." or any(re.fullmatch(as_shown(line), one) for one in said), (command, line, said)


@pytest.mark.slow
def test_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "streams.md").read_text(), flags=re.DOTALL):
        exec(block, names)
    assert "'feature_0'" in capsys.readouterr().out
    assert Path("codes.thali").exists()

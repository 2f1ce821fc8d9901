"""A file of figures that grows with every measurement, so that an interrupted run can be continued; lists of names."""

import argparse
import json
import os
from pathlib import Path
from typing import Any


def listed(text: str, known: list[str]) -> list[str]:
    """Names separated by commas, each of them known: for the command line."""
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}. Known: {', '.join(known)}")
    return names


class Record:
    """Entries of one benchmark, written to `path` (if there is one) after each `add`.

    `conditions` are what all entries have in common; a file made under others is refused.
    """

    def __init__(self, path: Path | None, conditions: dict[str, Any], key: tuple[str, ...]) -> None:
        self.path, self.key = path, key
        self.conditions = json.loads(json.dumps(conditions))
        self.about: dict[str, Any] = {}
        self.entries: list[dict[str, Any]] = []
        if path is not None and path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored.get("conditions") != self.conditions:
                raise SystemExit(
                    f"{path} holds figures made under other conditions:\n  there: {stored.get('conditions')}\n"
                    f"  now:   {self.conditions}\nGive another --json file, or the same options."
                )
            self.entries = stored["entries"]

    def has(self, *values: Any) -> bool:
        return any(tuple(entry[name] for name in self.key) == values for entry in self.entries)

    def add(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        self.write()

    def write(self, **more: Any) -> None:
        """Under a temporary name first: a killed run leaves the last complete file."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        head = json.dumps({**self.about, "conditions": self.conditions, **more}, indent=1)
        lines = ",\n".join(json.dumps(entry) for entry in self.entries)  # one line each
        temporary = self.path.with_name(self.path.name + ".part")
        temporary.write_text(f'{head[:-2]},\n "entries": [\n{lines}\n ]\n}}\n', encoding="utf-8")
        os.replace(temporary, self.path)

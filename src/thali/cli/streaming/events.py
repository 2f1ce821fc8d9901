"""What a stream tells programs: events as lines of JSON on standard output, and what was found of each row."""

import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from thali.cli.console import finite, forget_output
from thali.errors import InvalidFileError

if TYPE_CHECKING:
    import numpy as np

    from thali.estimator import LatentFeatures


class Events:
    """Lines of JSON, as long as somebody reads them."""

    def __init__(self) -> None:
        self.is_read = True
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")

    def tell(self, event: str, **facts: Any) -> None:
        """One line; it is seen when `flush` is called."""
        line = json.dumps(finite({"event": event} | facts), allow_nan=False, ensure_ascii=False)
        try:
            sys.stdout.write(line + "\n")
        except BrokenPipeError:
            self._is_left()

    def flush(self) -> None:
        """Let all be seen."""
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            self._is_left()

    def _is_left(self) -> None:
        self.is_read = False
        forget_output()


class RowLines:
    """What was found of rows: lines of JSON, or a table with a line for each number."""

    def __init__(self, path: Path | None, events: Events) -> None:
        """path: None for standard output, among the events."""
        self._events, self._path = events, path
        self._file: IO[str] | None = None
        if path is None:
            return
        if path.suffix not in (".csv", ".ndjson"):
            raise InvalidFileError(f"{path} must end in .csv or .ndjson, or be - for standard output. Rename it")
        try:
            self._file = path.open("x", encoding="utf-8", newline="")
        except FileExistsError as error:
            raise InvalidFileError(f"{path} exists. Choose another name, or remove it") from error
        except OSError as error:
            raise InvalidFileError(f"cannot write {path}: {error.strerror or error}. Choose another") from error
        if path.suffix == ".csv":
            self._file.write("row,what,value\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def tell(self, first: int, lines: "np.ndarray", codes: "np.ndarray", word: str, novelty: "np.ndarray") -> None:
        """Of the rows of a batch, of which the first has that number in the stream, from 1."""
        for row, (line, mine, new) in enumerate(zip(lines.tolist(), codes, novelty.tolist(), strict=True), first):
            facts = {"row": row, "line": line, word: mine.tolist(), "novelty": new}
            if self._file is None:
                self._events.tell("row", **facts)
            else:
                self._write(self._as_table(facts, word) if self._path.suffix == ".csv" else self._as_json(facts))  # type: ignore[union-attr]
        self._write("")

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(text)
            if not text:
                self._file.flush()
        except OSError as error:
            raise InvalidFileError(f"cannot write {self._path}: {error.strerror or error}. Make room for it") from error

    def _as_json(self, facts: dict[str, Any]) -> str:
        return json.dumps(finite(facts), allow_nan=False) + "\n"

    def _as_table(self, facts: dict[str, Any], word: str) -> str:
        cells = {"novelty": facts["novelty"]} | {f"feature_{k}": value for k, value in enumerate(facts[word])}
        return "".join(f"{facts['row']},{what},{value!r}\n" for what, value in cells.items() if value == value)


def of_features(model: "LatentFeatures", n_before: int, row: int) -> list[dict[str, Any]]:
    """What became of the features in the last batch: in the words of the inference, or how many there are now."""
    found = getattr(model, "events_", None)
    if found is not None:
        return [{"event": one.kind, "row": one.row, "feature": one.feature, "value": one.value} for one in found]
    n = model.n_components_
    return [] if n == n_before else [{"event": "features", "row": row, "n_features": n, "before": n_before}]

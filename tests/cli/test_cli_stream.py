"""`thali stream`: what arrives is taken in once, whatever else comes, and however it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from cli.quick_stream import make_quick

import thali as library

PROGRAM = Path(__file__).with_name("quick_stream.py")
PLAIN = ("--seed", 3, "--jobs", 1)
QUICK = (*PLAIN, "--batch", 50, "--inference", "stochastic-mean-field")


@pytest.fixture(autouse=True)
def costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    make_quick(monkeypatch)


@pytest.fixture
def lines(rng: np.random.Generator) -> list[str]:
    """300 rows x 5 dims of two features."""
    Z = rng.integers(0, 2, (300, 2))
    X = Z @ np.array([[3.0, 3, 0, 0, 0], [0, 0, 0, 3, 3]]) + rng.standard_normal((300, 5))
    return [",".join(f"{value:.4f}" for value in row) for row in X]


@pytest.fixture
def table(here: Path, lines: list[str]) -> Path:
    """Those rows in a file with a header."""
    path = here / "rows.csv"
    path.write_text("\n".join(["a,b,c,d,e", *lines]) + "\n")
    return path


def events(result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def summary(result) -> dict:
    last = events(result)[-1]
    assert last["event"] == "summary"
    return last


@pytest.fixture
def whole(thali, table: Path) -> bytes:
    """The state after all rows, in one run."""
    result = thali("stream", table, *QUICK, "--checkpoint", "whole.thali")
    assert result.exit_code == 0, result.stderr
    return Path("whole.thali").read_bytes()


def test_a_file_and_a_pipe_are_the_same(thali, table: Path, whole: bytes) -> None:
    result = thali("stream", *QUICK, "--checkpoint", "pipe.thali", input=table.read_text())
    assert result.exit_code == 0
    assert Path("pipe.thali").read_bytes() == whole
    told = summary(result)
    assert (told["rows"], told["new_rows"], told["bad_rows"], told["n_persistent"]) == (300, 300, 0, 2)
    assert next(one for one in events(result) if one["event"] == "features") == {
        "event": "features", "row": 50, "n_features": 2, "before": 0,
    }  # fmt: skip
    assert "reading standard input: 5 dims; line 1 is the header" in result.stderr
    fit = library.load("pipe.thali")
    assert fit.n_samples_seen_ == 300
    assert list(fit.feature_names_in_) == list("abcde")


def test_rows_of_json_are_the_same(thali, table: Path, lines: list[str], whole: bytes) -> None:
    rows = [dict(zip("abcde", map(float, line.split(",")), strict=True)) for line in lines]
    text = "\n".join(map(json.dumps, rows))
    assert thali("stream", "-", *QUICK, "--checkpoint", "json.thali", input=text).exit_code == 0
    assert Path("json.thali").read_bytes() == whole


def test_it_goes_on_where_it_was(thali, table: Path, lines: list[str], whole: bytes) -> None:
    """In two runs: the rows come again from the first, or only those that are new."""
    table.write_text("\n".join(["a,b,c,d,e", *lines[:100]]) + "\n")
    for name in ("again", "new"):
        assert thali("stream", table, *QUICK, "--checkpoint", f"{name}.thali").exit_code == 0
    table.write_text("\n".join(["a,b,c,d,e", *lines]) + "\n")
    result = thali("stream", table, *QUICK[2:], "--checkpoint", "again.thali", "--skip-seen")
    assert result.exit_code == 0, result.stderr
    assert "going on with again.thali: 100 rows seen, which are left out" in result.stderr
    assert (summary(result)["skipped_rows"], summary(result)["new_rows"]) == (100, 200)
    assert Path("again.thali").read_bytes() == whole
    result = thali("stream", *QUICK, "--checkpoint", "new.thali", input="\n".join(lines[100:]) + "\n")
    assert "and what comes is new" in result.stderr
    assert Path("new.thali").read_bytes() == whole


BAD = (
    "1,2",
    "1,2,3,4,5,6",
    "x,1,2,3,4",
    "inf,1,2,3,4",
    "1e300,1,2,3,4",
    "",
    ",,,,",
    '"1,2,3,4,5',
    "\x00,1,2,3,4",
    "\udcff,1,2,3,4",
)


def with_bad(lines: list[str]) -> tuple[bytes, list[int]]:
    """The rows with a bad one after each thirty, the last of them torn; the numbers of those lines."""
    mixed: list[str] = ["a,b,c,d,e"]
    numbers = []
    for i, line in enumerate(lines):
        mixed.append(line)
        if i % 25 == 24 and i // 25 < len(BAD):
            mixed.append(BAD[i // 25])
            numbers.append(len(mixed))
    text = "\n".join([*mixed, "1.5,2.5,3.5,4.5,5"])
    return text.encode("utf-8", "surrogateescape"), [*numbers, len(mixed) + 1]


def test_bad_rows_leave_no_trace(thali, table: Path, lines: list[str], whole: bytes) -> None:
    text, numbers = with_bad(lines)
    result = thali("stream", *QUICK, "--bad-rows", "skip", "--checkpoint", "skipped.thali", input=text)
    assert result.exit_code == 0, result.stderr
    assert sorted(one["line"] for one in events(result) if one["event"] == "bad_row") == numbers
    assert summary(result)["bad_rows"] == len(numbers) == len(BAD) + 1
    for line in numbers:
        assert f"left out: standard input, line {line}" in result.stderr
    assert Path("skipped.thali").read_bytes() == whole


def test_a_bad_row_stops_it_with_all_rows_before_it(thali, table: Path, lines: list[str], whole: bytes) -> None:
    table.write_text("\n".join(["a,b,c,d,e", *lines[:150], "1,2,x,4,5", *lines[150:]]) + "\n")
    result = thali("stream", table, *QUICK, "--checkpoint", "stopped.thali")
    assert result.exit_code == 1
    assert "line 152, column 3 ('c'): expected a number, found 'x'" in result.stderr
    assert "--bad-rows skip" in result.stderr
    assert (summary(result)["rows"], summary(result)["stopped_by"]) == (150, "error")
    table.write_text("\n".join(["a,b,c,d,e", *lines]) + "\n")  # mended
    assert thali("stream", table, *QUICK, "--checkpoint", "stopped.thali", "--skip-seen").exit_code == 0
    assert Path("stopped.thali").read_bytes() == whole


def test_what_does_not_fit_is_said_before_any_work(thali, table: Path, whole: bytes) -> None:
    before = Path("whole.thali").read_bytes()
    for arguments, words in (
        (("absent.csv",), "there is no file absent.csv"),
        (("-", "--follow"), "cannot be followed"),
        ((table, "--every", "soon"), "--every must be rows, such as 10000, or seconds"),
        ((table, "--batch", 7), "--batch has no use with recursive"),
        ((table, "--skip-seen"), "--skip-seen needs --checkpoint"),
        ((table, "--checkpoint", "nowhere/x.thali"), "there is no folder nowhere"),
        ((table, "--checkpoint", "whole.thali", "--seed", 4), "has seed 3"),
        ((table, "--checkpoint", "whole.thali", "--mass", 2), "cannot change to IBP(mass=2.0"),
        ((table, "--checkpoint", "whole.thali", "--inference", "particle-filter"), "which cannot change"),
        ((table, "--checkpoint", "rows.csv"), "rows.csv"),
        ((table, "--rows", "rows.txt"), "must end in .csv or .ndjson"),
        ((table, "--rows", "rows.csv"), "rows.csv exists"),
    ):
        result = thali("stream", *arguments, env={"TERM": "dumb", "COLUMNS": "400"})
        assert result.exit_code in (1, 2)
        assert words in result.stderr, result.stderr
    result = thali("stream", "--checkpoint", "whole.thali", input="a,b\n1,2\n")
    assert result.exit_code == 1
    assert "its dims are not those of the fit" in result.stderr
    assert Path("whole.thali").read_bytes() == before


def test_a_fit_that_cannot_go_on_is_no_checkpoint(thali, table: Path) -> None:
    X = np.loadtxt(table, delimiter=",", skiprows=1)
    library.LatentFeatures(inference=library.BPMeans(n_restarts=1), random_state=1).fit(X).save("fit.thali")
    result = thali("stream", table, "--checkpoint", "fit.thali")
    assert result.exit_code == 1
    assert "cannot go on with more rows" in result.stderr
    assert thali("stream", table, *QUICK, "--checkpoint", "fit.thali", "--overwrite").exit_code == 0


def test_rows_are_told_on_request(thali, table: Path, whole: bytes) -> None:
    result = thali("stream", table, *QUICK, "--rows", "-")
    rows = [one for one in events(result) if one["event"] == "row"]
    assert [one["row"] for one in rows] == list(range(1, 301))
    assert [one["line"] for one in rows] == list(range(2, 302))
    assert all(one["novelty"] is None for one in rows[:50])
    assert all(0 <= one["novelty"] <= 1 for one in rows[50:])
    assert all(len(one["presence"]) == 2 for one in rows)
    assert thali("stream", table, *QUICK, "--rows", "told.ndjson").exit_code == 0
    told = [json.loads(line) for line in Path("told.ndjson").read_text().splitlines()]
    assert [{"event": "row", **one} for one in told] == rows
    assert thali("stream", table, *QUICK, "--rows", "told.csv").exit_code == 0
    cells = [line.split(",") for line in Path("told.csv").read_text().splitlines()[1:]]
    assert [[float(value) for row, what, value in cells if what == f"feature_{k}"] for k in range(2)] == [
        [one["presence"][k] for one in rows] for k in range(2)
    ]
    assert [float(value) for _, what, value in cells if what == "novelty"] == [one["novelty"] for one in rows[50:]]


def test_a_file_that_grows_is_followed(thali, table: Path, lines: list[str], whole: bytes) -> None:
    """To the end that a signal makes; a line is taken once it is whole."""
    table.write_text("a,b,c,d,e\n" + "\n".join(lines[:120]) + "\n" + lines[120][:7])

    def grow() -> None:
        time.sleep(0.3)
        with table.open("a") as file:
            file.write(lines[120][7:] + "\n" + "\n".join(lines[121:]) + "\n1.5,2")
        until = time.monotonic() + 60
        while not Path("told.ndjson").exists() or Path("told.ndjson").read_text().count("\n") < 300:
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    growing = threading.Thread(target=grow)
    handler = signal.signal(signal.SIGTERM, lambda *_: None)  # in case that it comes too late
    growing.start()
    try:
        result = thali(
            "stream", table, "--follow", *QUICK, "--checkpoint", "grown.thali", "--rows", "told.ndjson", "--every", 50
        )
    finally:
        growing.join()
        signal.signal(signal.SIGTERM, handler)
    assert result.exit_code == 130, result.stderr
    assert summary(result)["stopped_by"] == "interrupt"
    assert "line 302: it had not come to its end" in result.stderr
    assert [one["row"] for one in events(result) if one["event"] == "checkpoint"] == list(range(50, 301, 50))
    assert Path("grown.thali").read_bytes() == whole


# ---- in a process of its own


class Child:
    """`thali stream` with its standard input and output in our hands."""

    def __init__(self, *arguments: object, options: tuple[object, ...] = QUICK, **how: object) -> None:
        command = [sys.executable, str(PROGRAM), "stream", *map(str, (*options, *arguments))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how
        )

    def send(self, lines: list[str]) -> None:
        self.process.stdin.write("\n".join(lines) + "\n")
        self.process.stdin.flush()

    def wait_for(self, **facts: object) -> dict:
        """The event with these facts."""
        for line in self.process.stdout:
            event = json.loads(line)
            if facts.items() <= event.items():
                return event
        raise AssertionError(f"it ended before {facts}: {self.process.stderr.read()}")

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def test_killed_in_mid_stream(thali, table: Path, lines: list[str], whole: bytes) -> None:
    child = Child("--checkpoint", "killed.thali", "--every", 100)
    child.send(["a,b,c,d,e", *lines[:210]])
    child.wait_for(event="checkpoint", row=200)
    child.process.kill()
    assert child.end()[0] == -signal.SIGKILL
    result = thali("stream", table, *QUICK, "--checkpoint", "killed.thali", "--skip-seen")
    assert result.exit_code == 0
    assert summary(result)["skipped_rows"] == 200
    assert Path("killed.thali").read_bytes() == whole


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["recursive", "streaming-mean-field", "stochastic-mean-field", "particle-filter"])
def test_killed_again_and_again(thali, table: Path, lines: list[str], inference: str, rng) -> None:
    """At any moment, in the middle of a checkpoint too, until a run comes to its end."""
    options = (*PLAIN, "--inference", inference, *(() if inference == "recursive" else ("--batch", 50)))
    how = ("--every", 1)
    assert thali("stream", table, *options, *how, "--checkpoint", "once.thali").exit_code == 0
    code = None
    while code != 0:
        child = Child(table, *how, "--checkpoint", "killed.thali", "--skip-seen", "-q", options=options)
        # a checkpoint at least: unbuffered, other events are seen before the batch that they are of is saved
        while (event := json.loads(child.process.stdout.readline())["event"]) not in ("checkpoint", "summary"):
            pass
        if event != "summary":
            time.sleep(rng.uniform(0, 0.02))
            child.process.kill()
        code = child.end()[0]
        assert code in (0, -signal.SIGKILL)
    assert not list(Path().glob(".*.part"))
    assert Path("killed.thali").read_bytes() == Path("once.thali").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_loses_nothing(thali, table: Path, lines: list[str], number: int) -> None:
    """Rows that wait for their batch are taken in, and a second run goes on with those that were not read."""
    child = Child("--checkpoint", "stopped.thali")
    child.send(["a,b,c,d,e", *lines[:130]])
    child.wait_for(event="features")
    time.sleep(1)
    child.process.send_signal(number)
    assert child.wait_for(event="summary")["rows"] == 130
    code, errors = child.end()
    assert code == 130
    assert "saved stopped.thali" in errors
    result = thali("stream", *QUICK, "--checkpoint", "stopped.thali", input="\n".join(lines[130:]) + "\n")
    assert summary(result)["rows"] == 300
    assert summary(result)["n_persistent"] == 2


@pytest.mark.slow
def test_a_reader_that_leaves(thali, table: Path, lines: list[str]) -> None:
    """What was read is taken in and saved."""
    child = Child("--checkpoint", "left.thali", "--rows", "-")
    child.send(["a,b,c,d,e", *lines[:100]])
    child.wait_for(event="features")
    child.process.stdout.close()
    child.send(lines[100:150])
    child.process.stdin.close()
    assert child.process.wait(timeout=60) == 1
    with child.process.stderr as errors:
        assert "Traceback" not in errors.read()
    assert library.load("left.thali").n_samples_seen_ == 150


@pytest.mark.slow
def test_a_line_of_100_megabytes(thali, table: Path, lines: list[str], whole: bytes) -> None:
    """It is told, and the memory that it takes is bounded."""
    child = Child("--checkpoint", "long.thali", "--bad-rows", "skip")
    child.send(["a,b,c,d,e", *lines[:100]])
    for _ in range(100):
        child.process.stdin.write("1," * 2**19)
    child.send(["", *lines[100:]])
    child.process.stdin.close()
    assert child.wait_for(event="bad_row")["line"] == 102
    with child.process.stdout as events, child.process.stderr as errors:
        assert len(events.readlines()) > 0
        assert "line 102" in errors.read()
    _, status, used = os.wait4(child.process.pid, 0)
    child.process.returncode = os.waitstatus_to_exitcode(status)
    assert child.process.returncode == 0
    assert Path("long.thali").read_bytes() == whole
    assert used.ru_maxrss < 600_000  # kB, most of it libraries


@pytest.mark.slow
def test_fed_by_simulate(here: Path) -> None:
    """The pipe of the docs."""
    thali = f"{sys.executable} {PROGRAM}"
    made = f"{thali} simulate --rows 3000 --dims 100 --mass 2 --noise-var 0.25 --feature-var 1 --seed 1 -o - --digits 6"
    command = f"{made} | {thali} stream --seed 0 --checkpoint made.thali"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["rows"] == 3000
    assert library.load("made.thali").feature_names_in_[0] == "dim_0"

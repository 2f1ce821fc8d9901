"""Random tables with a known truth are read right, or refused with the line and the column of what is wrong."""

from collections import Counter
from pathlib import Path

import pytest
from random_tables import misreading, random_case, wrong_refusal
from typer.testing import CliRunner

import thali as library
from thali.cli.main import app
from thali.data.fingerprint import fingerprint
from thali.errors import InvalidDataError
from thali.io import read_table


def test_read_right_or_refused_in_the_right_place(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(300):
        case = random_case(seed)
        path = tmp_path / f"t{seed}{case.suffix}"
        path.write_bytes(case.content)
        try:
            wrong = misreading(case, read_table(path))
            outcomes["read"] += 1
        except InvalidDataError as error:
            wrong = wrong_refusal(case, str(error).replace(str(path), ""))
            outcomes["refused" if case.bad else "unclear"] += 1
        path.unlink()
        assert not wrong, f"seed {seed}: {wrong}\n" + "\n".join(case.about)
    assert outcomes["read"] > 100
    assert outcomes["refused"] > 100
    assert outcomes["unclear"] < 15


@pytest.mark.slow
def test_a_fit_is_of_the_true_table_or_refused(tmp_path: Path) -> None:
    options = ["--chains", "1", "--warmup", "0", "--draws", "1", "--seed", "1", "--jobs", "1", "--no-checkpoint"]
    fitted = 0
    for seed in range(10_000, 10_300):
        case = random_case(seed)
        path, output = tmp_path / f"t{case.suffix}", tmp_path / "t.thali"
        path.write_bytes(case.content)
        result = CliRunner().invoke(app, ["fit", str(path), "-o", str(output), "--overwrite", *options])
        about = f"seed {seed}: {result.stderr}\n" + "\n".join(case.about)
        if result.exit_code == 1:
            assert result.stderr.startswith("error: "), about
            assert not wrong_refusal(case, result.stderr.replace(str(path), "")), about
            continue
        assert result.exit_code in (0, 3), about
        assert case.bad is None, about
        said = result.stderr.splitlines()[0]
        assert said.startswith("read "), about
        if "the first line" in result.stderr and case.unclear and "; no header" in said:
            continue  # a header of numbers, read as a row and announced
        fit = library.load(output)
        assert fit.data_fingerprint_ == fingerprint(case.X), about
        assert tuple(getattr(fit, "feature_names_in_", ())) == (case.dim_names or ()), about
        assert (" names the rows" in said) == (case.row_names is not None), about
        assert all(repr(text) in said for text in case.spelled), about
        fitted += 1
    assert fitted > 100

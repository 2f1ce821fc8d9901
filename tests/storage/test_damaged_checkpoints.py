"""Data, settings and files that do not fit a run that was stopped are refused, in words."""

import shutil

import pytest
from checkpointed import content, data, estimator

import thali
from thali.errors import InvalidDataError, InvalidFileError, InvalidParameterError


@pytest.mark.parametrize(
    "X", [data() + 1e-9, data()[:-1], data(0.1), data()[:, :4]], ids=["bits", "rows", "NaN", "dims"]
)
def test_other_data_are_refused(stopped, X):
    with pytest.raises(InvalidDataError, match=r"X must be the data of the run .* 40 rows x 5 dims .* Got .* same X"):
        thali.resume(stopped, X)


def test_names_of_dims_come_back(folder, often, crash, tmp_path):
    import pandas as pd

    frame = pd.DataFrame(data(), columns=list("abcde"))
    whole = content(estimator().fit(frame), tmp_path)
    crash(20, estimator(checkpoint=folder).fit, frame)
    m = thali.resume(folder, frame.to_numpy())
    assert list(m.feature_names_in_) == list("abcde")
    assert content(m, tmp_path) == whole


@pytest.mark.parametrize("settings", [{"n_chains": 3}, {"random_state": 1}, {"colour": "red"}])
def test_settings_that_would_change_the_draws_are_refused(stopped, settings):
    with pytest.raises(InvalidParameterError, match=f"resume takes.*Got {next(iter(settings))}"):
        thali.resume(stopped, data(), **settings)


def test_settings_are_checked(stopped):
    with pytest.raises(InvalidParameterError, match="max_time"):
        thali.resume(stopped, data(), max_time=-1)


def test_what_is_not_there(tmp_path):
    with pytest.raises(InvalidFileError, match="no run in"):
        thali.resume(tmp_path, data())
    with pytest.raises(InvalidFileError, match="no run in"):
        thali.resume(tmp_path / "nowhere", data())


@pytest.mark.parametrize("name", ["run.thali", "chain-0.state.thali", "chain-0.0.thali", "chain-0.4.thali"])
def test_damaged_files(stopped, name):
    path = stopped / name
    whole = path.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", whole[:-1], b"rubbish"):
        path.write_bytes(damage)
        with pytest.raises(InvalidFileError, match=name):
            thali.resume(stopped, data())


@pytest.mark.parametrize("name", ["chain-0.0.thali", "chain-0.4.thali"])
def test_lost_files(stopped, name):
    (stopped / name).unlink()
    with pytest.raises(InvalidFileError, match=name):
        thali.resume(stopped, data())


def test_files_in_the_wrong_place(stopped):
    """Whole files, but not those that belong there."""
    for source, target in (("run", "chain-0.state"), ("chain-0.state", "run"), ("chain-0.0", "chain-0.state")):
        kept = (stopped / f"{target}.thali").read_bytes()
        shutil.copy(stopped / f"{source}.thali", stopped / f"{target}.thali")
        with pytest.raises(InvalidFileError, match=target):
            thali.resume(stopped, data())
        (stopped / f"{target}.thali").write_bytes(kept)
    n_files = len(list(stopped.glob("chain-0.*.thali"))) - 1
    shutil.copy(stopped / f"chain-0.{n_files - 1}.thali", stopped / "chain-0.0.thali")
    with pytest.raises(InvalidFileError, match="chain-0"):
        thali.resume(stopped, data())


def test_a_chain_without_its_state_begins_anew(stopped, tmp_path):
    (stopped / "chain-0.state.thali").unlink()
    assert content(thali.resume(stopped, data()), tmp_path) == content(estimator().fit(data()), tmp_path)

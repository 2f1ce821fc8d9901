"""What `thali fit` and `thali resume` do with the folder of a run, and what they say of it."""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

import thali as library
from thali import LinearGaussian
from thali.storage import archive as files
from thali.storage.claims import Claim, holds_run

QUICK = ("--chains", 2, "--warmup", 2, "--draws", 4, "--seed", 3, "--jobs", 1)
MEAN_FIELD = ("--inference", "mean-field", "--seed", 3)


@pytest.fixture
def stopped(thali, survey: Path) -> Path:
    """A run that has just begun, as `thali fit` does it, without its first file."""
    from thali.io import read_table

    command = {"file": str(survey), "holdout": 0.0, "seed": 3}
    claim = Claim("survey.thali.run", command=command)
    model = library.LatentFeatures(n_chains=2, n_jobs=1, random_state=3, max_time=1e-9, checkpoint=claim, verbose=False)
    table = read_table(survey)
    import pandas as pd

    frame = pd.DataFrame(table.X, columns=list(table.dim_names))
    model.set_params(inference=library.CollapsedGibbs(n_warmup=2, n_draws=4)).fit(frame)
    return Path("survey.thali.run")


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_older_run_outlives_data_that_cannot_be_read(thali, stopped: Path) -> None:
    before = everything(stopped)
    Path("bad.csv").write_text("a,b\n1,2\n3\n")
    for arguments in (("absent.csv",), ("bad.csv",), ("survey.csv", "--noise-floor", 7)):
        result = thali("fit", *arguments, *QUICK, "-o", "survey.thali", "--overwrite")
        assert result.exit_code in (1, 2), result.stderr
        assert "go on with" not in result.stderr
        assert everything(stopped) == before
    result = thali("fit", "survey.csv", *QUICK, "-o", "survey.thali", "--overwrite", "--no-checkpoint")
    assert result.exit_code in (0, 3)
    assert not stopped.exists()  # now it was replaced


def test_a_run_that_another_process_is_at_is_left_alone(thali, stopped: Path) -> None:
    pytest.importorskip("fcntl")
    Path("survey.thali").write_text("precious")
    before = everything(stopped)
    with Claim(stopped).held(make=False):
        for options in (("--overwrite",), ("--overwrite", "--no-checkpoint"), ("--overwrite", *MEAN_FIELD), ()):
            result = thali("fit", "survey.csv", *QUICK[:2], *options)
            assert result.exit_code == 1
            assert "another process is at the run in survey.thali.run" in result.stderr
        assert "another process is at the run" in thali("resume", "survey.thali").stderr
    assert everything(stopped) == before
    assert Path("survey.thali").read_text() == "precious"
    Path("survey.thali").unlink()
    assert thali("resume", "survey.thali", "--max-time", 60).exit_code in (0, 3)
    assert not stopped.exists()


def test_litter_of_a_killed_removal_goes(thali, survey: Path, here: Path) -> None:
    thali("fit", survey, *QUICK)
    for verb in (("resume",), ("inspect",), ("fit", survey, *QUICK, "--overwrite", "-o")):
        Path("survey.thali.run").mkdir()
        Path("survey.thali.run", "chain-0.0.thali").write_text("")
        Path("survey.thali.run", "run.lock").touch()
        result = thali(*verb, "survey.thali")
        assert "go on with:" not in result.stderr
        assert sorted(path.name for path in here.iterdir()) == ["survey.csv", "survey.thali"], verb


def test_what_has_not_begun_cannot_go_on(thali, survey: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearGaussian, "adapt", press)
    result = thali("fit", survey, *QUICK)
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "interrupted; nothing to save yet"
    assert not Path("survey.thali.run").exists()


def test_interrupted_while_it_reports(thali, survey: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All was drawn and nothing is saved: it can go on, and only has to be saved."""

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    thali("fit", survey, *QUICK, "-o", "whole.thali")
    with monkeypatch.context() as patch:
        patch.setattr(library.LatentFeatures, "check", press)
        result = thali("fit", survey, *QUICK)
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "interrupted; go on with: thali resume survey.thali"
    assert thali("resume", "survey.thali", "--jobs", 1).exit_code in (0, 3)
    assert Path("survey.thali").read_bytes() == Path("whole.thali").read_bytes()
    assert not holds_run("survey.thali.run")


def test_mean_field_has_a_checkpoint_until_it_is_saved(thali, survey: Path, here: Path, monkeypatch) -> None:
    seen = []
    save = library.LatentFeatures.save
    monkeypatch.setattr(
        library.LatentFeatures, "save", lambda m, path: seen.append(holds_run("survey.thali.run")) or save(m, path)
    )
    assert thali("fit", survey, *MEAN_FIELD).exit_code in (0, 3)
    assert thali("fit", survey, *MEAN_FIELD, "--no-checkpoint", "--overwrite").exit_code in (0, 3)
    assert seen == [True, False]
    assert sorted(path.name for path in here.iterdir()) == ["survey.csv", "survey.thali"]


def test_another_version(thali, stopped: Path) -> None:
    meta, arrays = files.read(stopped / "run.thali")
    files.write(stopped / "run.thali", meta | {"thali": "0.0.7"}, arrays)
    result = thali("resume", "survey.thali", "--max-time", 60)
    assert f"warning: The run in survey.thali.run was begun with thali 0.0.7 (now {meta['thali']})" in result.stderr


def test_a_command_that_is_none(thali, stopped: Path) -> None:
    meta, arrays = files.read(stopped / "run.thali")
    for wrong in ([], 3, {"file": 3}, {"holdout": "x"}, {"seed": None}):
        files.write(stopped / "run.thali", meta | {"command": wrong}, arrays)
        result = thali("resume", "survey.thali")
        assert result.exit_code == 1
        assert "run.thali" in result.stderr


def test_a_run_of_an_older_version_keeps_its_command(thali, stopped: Path) -> None:
    meta, arrays = files.read(stopped / "run.thali")
    command = meta.pop("command")
    files.write(stopped / "run.thali", meta, arrays)
    assert "--data" in thali("resume", "survey.thali").stderr
    files.write(stopped / "command.thali", command, {})
    assert thali("resume", "survey.thali", "--max-time", 60).exit_code in (0, 3)
    assert not stopped.exists()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("attempt", range(20))
def test_two_commands_at_the_same_moment(thali, attempt: int, survey: Path) -> None:
    """One goes on, the other is told; the file is that of the one that went on."""
    wholes = []
    for seed in (1, 2):
        thali("fit", survey, *QUICK, "--seed", seed, "-o", f"whole{seed}.thali")
        wholes.append(Path(f"whole{seed}.thali").read_bytes())
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.SimpleQueue()

    def fit(seed: int) -> None:
        barrier.wait()
        result = thali("fit", survey, *QUICK, "--seed", seed)
        results.put((seed, result.exit_code, result.stderr))

    processes = [context.Process(target=fit, args=(seed,)) for seed in (1, 2)]
    for process in processes:
        process.start()
    found = sorted((results.get() for _ in processes), key=lambda result: result[1] == 1)
    for process in processes:
        process.join()
    (seed, code, _), (_, other, said) = found
    assert code in (0, 3)
    assert other == 1
    assert "another process is at the run" in said or "survey.thali exists" in said
    assert Path("survey.thali").read_bytes() == wholes[seed - 1]
    assert not Path("survey.thali.run").exists()
    assert np.isfinite(library.load("survey.thali").history_["log_joint"]).all()

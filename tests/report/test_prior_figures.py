"""The figures of priors: they show the numbers they were given."""

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from thali.core.binary import left_ordered
from thali.errors import InvalidDataError
from thali.report import figures
from thali.report import prior_figures as pf


def texts(figure: Figure) -> str:
    return " | ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def lines(axes) -> dict[str, np.ndarray]:
    """Labelled lines of axes."""
    return {line.get_label(): line.get_ydata() for line in axes.lines if not line.get_label().startswith("_")}


def test_draws_are_shown_left_ordered(rng):
    Z = rng.integers(0, 2, size=(12, 7))
    figure = pf.draws_of_z({"first": Z, "nothing": np.zeros((12, 3))})
    first, nothing = figure.axes
    np.testing.assert_array_equal(first.images[0].get_array(), left_ordered(Z))
    assert first.get_title(loc="left") == f"first\nK = {left_ordered(Z).shape[1]}"
    assert nothing.get_title(loc="left") == "nothing\nK = 0"
    assert not nothing.images[0].get_array().any()
    assert "no draws" in texts(pf.draws_of_z({}))


def test_draws_that_are_not_binary_are_refused():
    with pytest.raises(InvalidDataError, match="only 0 and 1"):
        pf.draws_of_z({"a": [[2]]})


def test_features_against_rows_has_a_line_for_each_prior_and_a_thin_one_for_each_draw():
    (axes,) = pf.features_against_rows(
        [1, 10, 100], {"a": [1, 2, 3], "b": [2, 4, 6]}, {"a": [[1, 1, 4], [0, 2, 2]]}
    ).axes
    found = lines(axes)
    assert {name: values.tolist() for name, values in found.items()} == {"a": [1, 2, 3], "b": [2, 4, 6]}
    thin = [line.get_ydata().tolist() for line in axes.lines if line.get_linewidth() < 1]
    assert thin == [[1, 1, 4], [0, 2, 2]]
    assert axes.get_xscale() == "log"
    assert axes.get_title(loc="left") == "Expected features and draws"


@pytest.mark.parametrize(
    ("expected", "draws", "words"),
    [
        ({"a": [1, 2]}, None, "a must be a list of 3"),
        ({"a": [1, 2, np.nan]}, None, "a must be a list of 3"),
        ({"a": [1, 2, 3]}, {"b": [[1, 2, 3]]}, "nothing is expected"),
        ({"a": [1, 2, 3]}, {"a": [[1, 2]]}, "a must be a list of 3"),
    ],
)
def test_features_against_rows_refuses_what_does_not_fit(expected, draws, words):
    with pytest.raises(InvalidDataError, match=words):
        pf.features_against_rows([1, 10, 100], expected, draws)


def test_truncation_curves_show_all_on_both_scales():
    curves = {"exact": [0.9, 0.5, 0.1], "Eq. 12": [1.0, 0.7, 0.2]}
    simulated = pf.Simulated([1, 3], [0.88, 0.0], [0.02, 0.0])
    figure = pf.truncation_curves([1, 2, 3], curves, simulated, "rounds")
    assert [axes.get_yscale() for axes in figure.axes] == ["linear", "log"]
    for axes in figure.axes:
        assert {name: list(values) for name, values in lines(axes).items()} == curves
        (bars,) = axes.containers
        assert bars.lines[0].get_xdata().tolist() == [1]  # no point for a mean of zero
        np.testing.assert_allclose(bars.lines[2][0].get_segments()[0][:, 1], [0.84, 0.92])
        assert axes.get_xlabel() == "truncation, rounds"
    assert "simulated" in texts(figure)


@pytest.mark.parametrize("curves", [{}, {"exact": [0.1]}, {"exact": [0.1, np.inf]}])
def test_truncation_curves_refuse_what_does_not_fit(curves):
    with pytest.raises(InvalidDataError):
        pf.truncation_curves([1, 2], curves)


def test_marginals_against_draws(rng):
    exact, frequency = rng.random((20, 4)), rng.random((20, 4))
    (axes,) = pf.marginals_against_draws(exact, frequency, 100, rows=[1, 20]).axes
    found = lines(axes)
    np.testing.assert_array_equal(found["row 1"], exact[0])
    np.testing.assert_array_equal(found["row 20"], exact[19])
    points = [bars.lines[0].get_ydata() for bars in axes.containers]
    np.testing.assert_array_equal(points, frequency[[0, 19]])
    low, high = axes.containers[0].lines[2][0].get_segments()[1][:, 1]
    assert high - low == pytest.approx(4 * np.sqrt(exact[0, 1] * (1 - exact[0, 1]) / 100))
    assert len(lines(pf.marginals_against_draws(exact, frequency, 100).axes[0])) == 5


@pytest.mark.parametrize(
    ("exact", "frequency", "rows"), [([0.1], [0.1], None), ([[0.1]], [[0.1, 0.2]], None), ([[0.1]], [[0.1]], [2])]
)
def test_marginals_refuse_what_does_not_fit(exact, frequency, rows):
    with pytest.raises(InvalidDataError):
        pf.marginals_against_draws(exact, frequency, 10, rows)


def test_they_can_be_saved(tmp_path):
    for figure in (
        pf.draws_of_z({"a": np.eye(3)}),
        pf.features_against_rows([1, 2], {"a": [1, 2]}),
        pf.truncation_curves([1, 2], {"exact": [0.0, 0.0]}),
        pf.marginals_against_draws([[0.5, 0.1]], [[0.4, 0.2]], 10),
    ):
        assert figures.save(figure, tmp_path / "a.png").stat().st_size > 1000

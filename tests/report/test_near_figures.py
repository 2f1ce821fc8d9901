"""Figures of rows that are near each other show what they were given, in the order they promise."""

import matplotlib
import numpy as np
import pytest

from thali import DistanceDependentGibbs, DistanceDependentIBP, LatentFeatures
from thali.errors import InvalidDataError
from thali.report import near_figures


def texts(figure) -> str:
    return " | ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def test_strips_go_by_time_and_the_first_feature_is_above(rng):
    times = rng.permutation(20.0 * np.arange(12))
    P = np.column_stack([times > 150, times < 90]).astype(float)
    figure = near_figures.features_over_time(times, P)
    first, second = figure.axes
    assert (first.get_ylabel(), second.get_ylabel()) == ("2", "1")
    area = first.collections[0].get_paths()[0].vertices
    assert area[area[:, 1] > 0.5, 0].max() == pytest.approx(90)  # half way to the first row without it
    assert second.get_xlabel() == "time"
    assert "2 features" in texts(figure)
    figure.draw_without_rendering()


def test_maps_have_a_panel_for_each_feature(rng):
    P = rng.random((30, 5))
    points = rng.normal(size=(30, 2))
    figure = near_figures.features_in_space(points, P)
    panels = [axes for axes in figure.axes if axes.collections and axes.get_title(loc="left")]
    assert len(panels) == 5
    drawn = panels[2].collections[0]
    shown = {tuple(np.round(at, 9)): c for at, c in zip(drawn.get_offsets(), drawn.get_array(), strict=True)}
    assert all(shown[tuple(np.round(at, 9))] == p for at, p in zip(points, P[:, 2], strict=True))
    assert (np.diff(drawn.get_array()) >= 0).all()
    figure.draw_without_rendering()


def test_shared_matrices_have_one_scale_and_one_order():
    one, other = np.array([[9.0, 1, 2], [1, 9, 0], [2, 0, 9]]), np.full((3, 3), 0.5)
    figure = near_figures.shared_matrices({"prior": one, "posterior": other}, order=[2.0, 0.0, 1.0])
    panels = [axes for axes in figure.axes if axes.images]
    values = [np.ma.filled(axes.images[0].get_array().astype(float), np.nan) for axes in panels]
    np.testing.assert_array_equal(values[0], [[np.nan, 0, 1], [0, np.nan, 2], [1, 2, np.nan]])
    assert {axes.images[0].get_clim() for axes in panels} == {(0.0, 2.0)}
    assert "prior: 1 on average" in texts(figure)
    figure.draw_without_rendering()


def test_figures_of_a_fit(rng):
    times = np.arange(10.0)
    Z = (times[:, None] < 5).astype(float)
    X = Z @ np.full((1, 3), 4.0) + 0.3 * rng.standard_normal((10, 3))
    prior = DistanceDependentIBP(decay="exponential")
    inference = DistanceDependentGibbs(n_warmup=5, n_draws=5)
    fit = LatentFeatures(prior=prior, inference=inference, n_chains=2, random_state=0, verbose=False).fit(
        X, times=times
    )
    shared = fit.posterior_.expected_shared()
    wanted = np.mean(
        [fit.posterior_.Z(c, d).astype(float) @ fit.posterior_.Z(c, d).T for c in (0, 1) for d in range(5)], 0
    )
    np.testing.assert_allclose(shared, wanted)
    given = fit.posterior_.concrete(0, 0).prior.expected_shared()
    assert near_figures.shared_matrices({"prior": given, "posterior": shared}, order=times).axes
    assert near_figures.features_over_time(times, fit.presence(X)).axes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: near_figures.features_over_time([1.0, 2.0], np.ones((3, 1))), "each of 3 rows, got 2"),
        (lambda: near_figures.features_over_time([1.0, np.nan], np.ones((2, 1))), "times must be a list of finite"),
        (lambda: near_figures.features_over_time([1.0], [[1.5]]), "from 0 to 1"),
        (lambda: near_figures.features_in_space(np.ones((3, 3)), np.ones((3, 1))), "two coordinates"),
        (lambda: near_figures.shared_matrices({"a": np.ones((2, 3))}), "square and of one size"),
        (lambda: near_figures.shared_matrices({"a": np.ones((2, 2)), "b": np.ones((3, 3))}), "square and of one size"),
        (lambda: near_figures.shared_matrices({"a": np.ones((2, 2))}, order=[1.0]), "each of 2 rows, got 1"),
    ],
)
def test_what_cannot_be_drawn_is_said(call, words):
    with pytest.raises(InvalidDataError, match=words):
        call()


def test_nothing_to_draw_is_said():
    assert "no features" in texts(near_figures.features_over_time([1.0], np.ones((1, 0))))
    assert "no features" in texts(near_figures.features_in_space(np.ones((1, 2)), np.ones((1, 0))))
    assert "no matrices" in texts(near_figures.shared_matrices({}))
    assert "no two rows" in texts(near_figures.shared_matrices({"a": [[1.0]]}))

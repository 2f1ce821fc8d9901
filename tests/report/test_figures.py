"""The figures: they show the numbers they were given, in the order they promise."""

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from thali.errors import InvalidDataError, InvalidParameterError
from thali.report import figures


def picture(axes) -> np.ndarray:
    """The values of the picture that axes show, NaN where masked."""
    return np.ma.filled(axes.images[0].get_array().astype(float), np.nan)


def tiles(figure: Figure) -> list:
    """The axes that hold a picture (a colour bar holds none)."""
    return [axes for axes in figure.axes if axes.images]


def texts(figure: Figure) -> str:
    return " | ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


# --- K ----------------------------------------------------------------------------------------------------


def test_k_posterior_has_a_bar_for_each_k_and_a_dark_mode():
    (axes,) = figures.k_posterior({3: 0.1, 5: 0.7, 6: 0.15, 8: 0.05}, truth=5).axes
    heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in axes.patches}
    assert heights == {3: 0.1, 4: 0.0, 5: 0.7, 6: 0.15, 7: 0.0, 8: 0.05}
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert colours.count(colours[2]) == 1  # the mode alone is dark
    labels = {text.get_text() for text in axes.texts}
    assert {"true K = 5", "10%", "70%", "15%", "5%"} <= labels
    assert axes.get_title(loc="left") == "Most probable: K = 5 (70%)"
    assert "number of features" in axes.get_xlabel()
    assert axes.get_yticks().max() <= 1


def test_k_posterior_reaches_a_truth_outside_the_draws():
    (axes,) = figures.k_posterior({4: 1.0}, truth=9).axes
    low, high = axes.get_xlim()
    assert low < 4 < 9 < high
    assert axes.lines[0].get_xdata()[0] == 9


def test_k_posterior_without_truth_marks_none_and_a_wide_one_has_no_labels():
    (axes,) = figures.k_posterior({k: 1 / 30 for k in range(30)}).axes
    assert len(axes.patches) == 30
    assert not axes.lines
    assert not axes.texts


def test_k_posterior_never_shows_a_negative_k():
    (axes,) = figures.k_posterior({0: 1.0}).axes
    assert axes.get_xticks().tolist() == [0, 1]


@pytest.mark.parametrize("bad", [{}, {3: -0.1}, {3: float("nan")}])
def test_k_posterior_refuses_what_is_no_distribution(bad):
    with pytest.raises(InvalidParameterError, match="probabilities must"):
        figures.k_posterior(bad)


# --- pictures ---------------------------------------------------------------------------------------------


def test_feature_images_are_ordered_by_share_on_one_symmetric_scale(rng):
    features = rng.normal(size=(3, 6))
    figure = figures.feature_images(features, (2, 3), prevalence=[0.2, 0.001, 0.9])
    shown = tiles(figure)
    assert [axes.get_title() for axes in shown] == ["1  ·  90%", "2  ·  20%", "3  ·  <1%"]
    for axes, index in zip(shown, [2, 0, 1], strict=True):
        np.testing.assert_array_equal(picture(axes), features[index].reshape(2, 3))
    limit = np.abs(features).max()
    assert {axes.images[0].get_clim() for axes in shown} == {(-limit, limit)}
    assert len(figure.axes) == 4  # three tiles and a colour bar
    assert figure.get_suptitle() == "3 features, by share of rows"


def test_feature_images_without_shares_keep_their_order(rng):
    features = rng.normal(size=(9, 4))
    shown = tiles(figures.feature_images(features, (2, 2)))
    assert [axes.get_title() for axes in shown] == [str(rank) for rank in range(1, 10)]
    np.testing.assert_array_equal(picture(shown[8]).ravel(), features[8])


def test_feature_images_say_when_some_are_left_out(rng):
    figure = figures.feature_images(rng.normal(size=(9, 4)), (2, 2), max_features=5)
    assert len(tiles(figure)) == 5
    assert figure.get_suptitle() == "5 of 9 features"


def test_no_features_is_said():
    assert "no features" in texts(figures.feature_images(np.empty((0, 4)), (2, 2)))


def test_features_of_zeros_can_be_drawn():
    (axes,) = tiles(figures.feature_images(np.zeros((1, 4)), (2, 2)))
    assert axes.images[0].get_clim() == (-1, 1)


def test_feature_images_refuse_shapes_that_do_not_fit():
    with pytest.raises(InvalidDataError, match=r"pictures of 2 x 3, got \(4, 5\)"):
        figures.feature_images(np.ones((4, 5)), (2, 3))
    with pytest.raises(InvalidDataError, match="one share for each of 4 features"):
        figures.feature_images(np.ones((4, 6)), (2, 3), prevalence=[0.5])


def test_data_reconstruction_and_residual(rng):
    X = rng.normal(size=(3, 4))
    X[1, 2] = np.nan
    fitted = rng.normal(size=(3, 4))
    figure = figures.data_and_reconstruction(X, fitted, (2, 2))
    shown = tiles(figure)
    assert len(shown) == 9
    for column in range(3):
        for axes, values in zip(shown[column::3], (X, fitted, X - fitted), strict=True):
            np.testing.assert_array_equal(picture(axes).ravel(), values[column])
    assert [axes.get_ylabel() for axes in shown[::3]] == ["data", "reconstruction", "residual"]
    data_scale, fitted_scale, residual_scale = (axes.images[0].get_clim() for axes in shown[::3])
    assert data_scale == fitted_scale
    assert residual_scale[0] == -residual_scale[1]
    assert len(figure.axes) == 9 + 2
    assert figure.get_suptitle() == "3 rows; missing cells in grey"


def test_only_the_first_rows_are_shown_and_that_is_said(rng):
    X = rng.normal(size=(12, 4))
    figure = figures.data_and_reconstruction(X, X, (2, 2), max_rows=2)
    assert len(tiles(figure)) == 6
    assert figure.get_suptitle() == "First 2 of 12 rows"


def test_wholly_missing_rows_can_be_drawn():
    figure = figures.data_and_reconstruction(np.full((1, 4), np.nan), np.zeros((1, 4)), (2, 2))
    figure.draw_without_rendering()
    assert np.isnan(picture(tiles(figure)[0])).all()


def test_rows_and_reconstructions_must_be_as_many():
    with pytest.raises(InvalidDataError, match="3 rows of data but 2 reconstructions"):
        figures.data_and_reconstruction(np.ones((3, 4)), np.ones((2, 4)), (2, 2))


# --- presence ---------------------------------------------------------------------------------------------


def test_presence_is_shown_left_ordered():
    presence = np.array([[0, 0.1, 0.9], [1, 0, 1], [0, 0, 1], [1, 0.8, 0.7]])
    figure = figures.presence_heatmap(presence)
    top, main, _ = figure.axes
    np.testing.assert_array_equal(picture(main), [[0.7, 1, 0.8], [1, 1, 0], [0.9, 0, 0.1], [1, 0, 0]])
    assert main.images[0].get_clim() == (0, 1)
    np.testing.assert_allclose([bar.get_height() for bar in top.patches], [0.9, 0.5, 0.225])
    assert top.get_title(loc="left") == "4 rows, 3 features"


def test_many_rows_are_thinned_evenly_and_that_is_said():
    presence = (np.arange(3000) < 600)[:, None].astype(float)
    figure = figures.presence_heatmap(presence)
    top, main, _ = figure.axes
    assert picture(main).shape == (500, 1)
    assert picture(main).mean() == pytest.approx(0.2, abs=0.005)
    assert top.patches[0].get_height() == pytest.approx(0.2)  # of all rows, not of those shown
    assert top.get_title(loc="left") == "500 of 3,000 rows shown, 1 feature"


def test_presence_without_features_or_of_another_shape():
    assert "no features" in texts(figures.presence_heatmap(np.empty((5, 0))))
    with pytest.raises(InvalidDataError, match=r"got shape \(3,\)"):
        figures.presence_heatmap(np.ones(3))


# --- traces -----------------------------------------------------------------------------------------------


def test_traces_have_a_panel_for_each_quantity_and_a_line_for_each_chain(rng):
    draws = {"n_features": rng.integers(3, 6, size=(2, 50)), "log_joint": rng.normal(size=(2, 50))}
    figure = figures.traces(draws)
    assert [axes.get_ylabel() for axes in figure.axes] == ["features K", "log joint"]
    for axes, values in zip(figure.axes, draws.values(), strict=True):
        np.testing.assert_array_equal([line.get_ydata() for line in axes.lines], values)
        assert len({line.get_color() for line in axes.lines}) == 2
    assert figure.axes[-1].get_xlabel() == "draw"
    assert figure.get_suptitle() == "2 chains, one colour each"


def test_traces_of_chosen_names_in_that_order(rng):
    draws = {name: rng.normal(size=(1, 5)) for name in ("a_b", "mass", "c")}
    figure = figures.traces(draws, names=["c", "a_b"])
    assert [axes.get_ylabel() for axes in figure.axes] == ["c", "a b"]
    assert figure.get_suptitle() == "1 chain"


def test_a_constant_k_has_whole_ticks():
    figure = figures.traces({"n_features": np.full((1, 20), 4)})
    figure.draw_without_rendering()
    assert figure.axes[0].get_yticks().tolist() == [3, 4, 5]


def test_traces_refuse_unknown_names_and_other_shapes():
    with pytest.raises(InvalidParameterError, match="no draws named b; there are a"):
        figures.traces({"a": np.ones((1, 3))}, names=["b"])
    with pytest.raises(InvalidDataError, match=r"shape \(chain, draw\), got \(3,\)"):
        figures.traces({"a": np.ones(3)})
    assert "no draws" in texts(figures.traces({}))


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")])
def test_saved_files_are_whole_and_reproducible(tmp_path, suffix, start):
    first = figures.save(figures.k_posterior({4: 1.0}), tmp_path / f"one{suffix}")
    second = figures.save(figures.k_posterior({4: 1.0}), str(tmp_path / f"two{suffix}"))
    assert first.read_bytes().startswith(start)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([first, second])


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "k.png"
    path.write_bytes(b"old")

    def fail(self, partial, **kwargs):
        partial.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        figures.save(Figure(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_save_refuses_other_formats_and_missing_directories(tmp_path):
    with pytest.raises(InvalidParameterError, match=r"saved as \.png, \.svg, \.pdf"):
        figures.save(Figure(), tmp_path / "k.gif")
    with pytest.raises(InvalidParameterError, match="there is no directory"):
        figures.save(Figure(), tmp_path / "absent" / "k.png")


def test_figures_leave_the_settings_of_matplotlib_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    figures.save(figures.feature_images(np.eye(4), (2, 2)), tmp_path / "f.svg")
    assert dict(matplotlib.rcParams) == before


# --- loadings ---------------------------------------------------------------------------------------------


def test_loadings_are_sorted_by_their_factor_and_doubtful_ones_left_blank():
    loadings = np.array([[0.0, 2.0, 0.0, -1.0], [3.0, 0.1, 0.0, 0.0]])
    presence = np.array([[0.0, 1.0, 0.0, 0.9], [1.0, 0.2, 0.0, 0.1]])
    figure = figures.loadings_heatmap(loadings, presence)
    (axes,) = tiles(figure)
    np.testing.assert_allclose(picture(axes), [[2.0, 0.0], [-1.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    assert [bar.get_height() for bar in figure.axes[0].patches] == [2, 1]
    assert "4 dims, 2 factors, 38% of loadings" in texts(figure)
    assert figures.loadings_heatmap(loadings).axes


def test_loadings_of_many_dims_are_thinned(rng):
    figure = figures.loadings_heatmap(rng.standard_normal((3, 900)), max_dims=50)
    assert "50 of 900 dims shown" in texts(figure)
    assert "no features" in texts(figures.loadings_heatmap(np.zeros((0, 5))))
    assert figures.loadings_heatmap(np.zeros((2, 3))).axes
    with pytest.raises(InvalidDataError, match="one shape"):
        figures.loadings_heatmap(np.zeros((2, 3)), np.zeros((3, 2)))

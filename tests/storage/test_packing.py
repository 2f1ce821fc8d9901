"""Packing: what goes in comes out, bit for bit and laid out alike; nothing else comes out of a file."""

import json
from typing import NamedTuple

import numpy as np
import pytest

from thali import IBP, CollapsedGibbs, Gamma, LinearGaussian, NormalOffset, PerDim
from thali.errors import InvalidFileError
from thali.inference.samplers.chain import SweepInfo, ZState
from thali.observations.gaussian.codebook import GaussianCodebook
from thali.observations.gaussian.rows import GaussianRows
from thali.posteriors.base import Draw
from thali.storage.packing import pack, unpack


def through(things):
    arrays = {}
    form = json.loads(json.dumps(pack(things, "things", arrays), sort_keys=True))
    return unpack(form, arrays, len(things))


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        alike = (a.dtype, a.shape, a.flags.c_contiguous) == (b.dtype, b.shape, b.flags.c_contiguous)
        return alike and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


@pytest.mark.parametrize(
    "thing",
    [
        None, True, 3, 2**127 + 1, 0.1, -0.0, float("nan"), float("inf"), 5e-324, "auto",
        np.float64(0.1), np.int64(-3), np.bool_(True), np.uint8(7),
        np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((0, 4)),
        np.array([0, 1, 1], dtype=np.uint8), np.array([0, 255], dtype=np.uint8), np.zeros((4, 0), dtype=np.uint8),
        np.array([True, False]), np.arange(3, dtype=np.int32), np.array([-0.0, np.nan, np.inf, 1 / 3]),
        {"b": 1, "a": np.ones(2), "deep": {"x": [1, 2.5, None]}}, [str(i) for i in range(12)],
        SweepInfo(-1.5, 3, 1e-12),
        ZState(
            IBP(mass=1 / 3),
            LinearGaussian(noise_var=np.array([0.1, 1 / 3]), feature_var=2.0, offset=np.ones(2)),
            GaussianRows(np.eye(3, 2, dtype=np.uint8), np.eye(2), np.ones((2, 2)), np.zeros(0)),
        ),
        LinearGaussian(noise_var=PerDim(2.0), offset=NormalOffset(np.arange(3.0)), noise_floor=0.1),
        CollapsedGibbs(n_draws=7), IBP(mass=Gamma(2, 1)),
    ],
    ids=lambda thing: f"{type(thing).__name__}",
)  # fmt: skip
def test_one_thing(thing):
    (back,) = through([thing])
    assert same(back, thing) or back == thing
    assert type(back) is type(thing)


def draws(rng, n):
    scale = np.ones(2)
    for k in rng.integers(0, 4, n):
        z = rng.integers(2, size=(5, k)).astype(np.uint8)
        observation = LinearGaussian(noise_var=rng.random(2) + 0.1, feature_var=float(rng.random() + 0.1), scale=scale)
        codebook = GaussianCodebook(rng.random((k, 2)), z.sum(axis=0).astype(np.int64), rng.random((k, k)))
        score = float(rng.random())
        yield Draw(z, score, np.float64(score), IBP(mass=rng.random() + 0.1), observation, codebook)


def test_many_draws_take_as_many_arrays_as_two(rng):
    many = list(draws(rng, 100))
    sizes = []
    for some in (many, many[:2]):
        arrays = {}
        pack(some, "draws", arrays)
        sizes.append(len(arrays))
    assert sizes[0] == sizes[1]
    back = through(many)
    for a, b in zip(many, back, strict=True):
        assert same(a.z, b.z)
        assert type(a.codebook) is type(b.codebook)
        assert same(a.codebook.arrays(), b.codebook.arrays())
        assert all(getattr(a, f) == getattr(b, f) for f in ("log_joint", "free_energy", "prior", "observation"))
    assert all(draw.observation.scale is back[0].observation.scale for draw in back)  # held once, as before


def test_zeros_keep_their_signs():
    assert [str(x) for x in through([0.0, -0.0])] == ["0.0", "-0.0"]


class Foreign(NamedTuple):
    """Not of thali."""

    x: int


class Nothing:
    """Neither a spec nor a tuple."""

    def __repr__(self):  # the same in every process
        return "Nothing()"


@pytest.mark.parametrize(
    "things",
    [
        [Nothing()], [{1, 2}], [np.zeros(2), np.zeros((2, 2))], [np.zeros(2), np.arange(2)],
        [IBP(), LinearGaussian()], [{"a": 1}, {"b": 1}], [1, "a"], [None, 1], [[1], [1, 2]], [1j],
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_packed_is_refused(things):
    with pytest.raises(TypeError):
        pack(things, "x", {})


@pytest.mark.parametrize("kind", ["tuple subprocess.Popen", "tuple thali.files.write", "tuple thali.errors.ThaliError",
                                  "tuple thali.absent.Draw", "spec Popen", f"tuple {__name__}.Foreign"])  # fmt: skip
def test_only_classes_of_thali_come_out(kind):
    with pytest.raises(InvalidFileError, match="does not know"):
        unpack({"kind": kind, "parts": [["x", {"value": 1}]]}, {}, 1)


@pytest.mark.parametrize("change", [lambda a: a.pop("x.values"), lambda a: a.update({"x.values": np.zeros(5)}),
                                    lambda a: a.update({"x.shapes": -a["x.shapes"]})])  # fmt: skip
def test_arrays_that_do_not_match_are_refused(change):
    arrays = {}
    form = pack([np.ones(3)], "x", arrays)
    change(arrays)
    with pytest.raises((KeyError, ValueError)):
        unpack(form, arrays, 1)


def test_a_wrong_number_of_things_is_refused():
    arrays = {}
    form = pack([0.1, 0.2], "x", arrays)
    with pytest.raises(ValueError, match="2 values where there should be 3"):
        unpack(form, arrays, 3)

"""Specs: validation with clear words, nested changes, equality."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from thali import IBP, BetaBernoulli, CollapsedGibbs, Gamma, InvalidParameterError, LinearGaussian
from thali.core.distributions import Beta, NormalOffset, PerDim
from thali.core.model import Model
from thali.core.spec import Spec, at_least, hyper, is_distribution, not_negative, positive, real, setting, unit_interval


@dataclasses.dataclass(frozen=True, eq=False)
class Inner(Spec):
    size: Any = hyper(1.0, positive)
    steps: int = setting(3, at_least(1))


@dataclasses.dataclass(frozen=True, eq=False)
class Outer(Spec):
    part: Any = dataclasses.field(default_factory=Inner)
    share: Any = hyper(0.5, unit_interval)
    table: Any = None


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda: Inner(size=-1),
            ["Inner.size", "a positive number", "(fixed)", "distribution", "(learned)", "Got -1."],
        ),
        (lambda: Inner(steps=0), ["Inner.steps", "an integer, 1 or more", "Got 0."]),
        (lambda: Inner(steps=2.0), ["Inner.steps", "Got 2.0."]),
        (lambda: Inner(steps=True), ["Inner.steps", "Got True."]),
        (lambda: Inner(steps=Gamma(1, 1)), ["Inner.steps", "Got Gamma("]),  # a setting cannot be learned
        (lambda: Outer(share=1.0), ["Outer.share", "[0, 1)", "Got 1.0."]),
        (lambda: Outer(share=Gamma(1, 1)), ["Outer.share", "Got Gamma("]),  # its support is too wide
        (lambda: Outer(part__size=1.0), None),
        (lambda: Inner().replace(steps=-2), ["Inner.steps", "Got -2."]),
        (lambda: Inner().replace(colour=1), ["Inner", "colour", "size, steps"]),
        (lambda: Outer().replace(part__colour=1), ["Inner", "colour", "size, steps"]),
        (lambda: Outer().replace(share__size=1), ["Outer.share", "0.5", "no parameters"]),
    ],
)
def test_errors_name_class_field_wanted_and_got(build, words):
    if words is None:
        with pytest.raises(TypeError):
            build()
        return
    with pytest.raises(InvalidParameterError) as caught:
        build()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("domain", "good", "bad"),
    [
        (positive, [1, 0.1, np.float32(2), np.int64(3)], [0, -1, math.nan, math.inf, "1", None, True, [1], 1j]),
        (real, [0, -3.5, np.float64(1)], [math.nan, -math.inf, "0", None, False]),
        (not_negative, [0, 2.5], [-1e-300, math.nan, None]),
        (unit_interval, [0, 0.999], [1, -0.1, math.nan]),
        (at_least(2), [2, np.int32(7)], [1, 2.0, True, None, "3"]),
    ],
)
def test_domains(domain, good, bad):
    assert all(domain.contains(value) for value in good)
    assert not any(domain.contains(value) for value in bad)


def test_replace_reaches_nested_specs_and_leaves_the_original_alone():
    old = Outer()
    new = old.replace(part__size=4.0, part__steps=9, share=0.25)
    assert (new.part.size, new.part.steps, new.share) == (4.0, 9, 0.25)
    assert (old.part.size, old.part.steps, old.share) == (1.0, 3, 0.5)
    assert old.replace(part=Inner(steps=5), part__size=2.0).part == Inner(size=2.0, steps=5)
    deep = Model(IBP(), LinearGaussian()).replace(prior__mass__shape=3.0)
    assert deep.prior.mass == Gamma(3.0, 1.0)


def test_specs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Inner().size = 2.0


def test_get_params():
    spec = Outer(part=Inner(size=Gamma(2, 3)))
    assert set(spec.get_params(deep=False)) == {"part", "share", "table"}
    deep = spec.get_params()
    assert deep["part__steps"] == 3
    assert deep["part__size__rate"] == 3
    assert spec.replace(**{k: v for k, v in deep.items() if "__" not in k}) == spec


def test_equality_and_hash():
    assert Inner(size=2) == Inner(size=2.0)
    assert Inner(size=2) != Inner(size=3)
    assert Inner() != Outer()
    assert Inner() != "Inner"
    a = Outer(table=np.array([1.0, 2.0]))
    assert a == Outer(table=np.array([1.0, 2.0]))
    assert a == Outer(table=[1.0, 2.0])
    assert a != Outer(table=np.array([1.0, 3.0]))
    assert a != Outer(table=np.array([1.0, 2.0, 3.0]))
    assert a != Outer(table=None)
    assert hash(a) == hash(Outer(table=np.array([1.0, 2.0])))
    assert LinearGaussian(offset=np.zeros(2)) == LinearGaussian(offset=np.zeros(2))
    assert IBP(mass=Gamma(1, 2)) != IBP(mass=Gamma(1, 3))


def test_learned_and_concrete():
    spec = IBP(mass=Gamma(1, 1), concentration=2.0, discount=Beta(1, 1))
    assert set(spec.learned) == {"mass", "discount"}
    with pytest.raises(InvalidParameterError, match=r"IBP\.log_prob needs numbers, but mass, discount"):
        spec.log_prob(np.ones((2, 1)))
    IBP(mass=1.0).require_concrete("log_prob")
    assert not IBP(mass=1.0).learned


@pytest.mark.parametrize("value", [Gamma(1, 1), PerDim(), NormalOffset(), Beta(1, 1)])
def test_distributions_are_recognised(value):
    assert is_distribution(value)


@pytest.mark.parametrize("value", [1.0, None, "Gamma", Gamma, IBP(), CollapsedGibbs(), BetaBernoulli()])
def test_other_values_are_not_distributions(value):
    assert not is_distribution(value)


@pytest.mark.parametrize(
    "build",
    [
        lambda: IBP(mass=PerDim()),  # one value per dim cannot be one mass
        lambda: LinearGaussian(feature_var=PerDim()),
        lambda: LinearGaussian(offset=Gamma(1, 1)),
        lambda: PerDim(level=-3.0),
        lambda: NormalOffset(centre="x"),
        lambda: Gamma(1, 1, relative="x"),
        lambda: LinearGaussian(noise_floor=[]),
    ],
    ids=["per-dim mass", "per-dim feature_var", "gamma offset", "level", "centre", "relative", "floor"],
)
def test_a_distribution_that_cannot_work_there_is_refused(build):
    with pytest.raises(InvalidParameterError, match="Got"):
        build()

"""Whether prior, observation and inference fit, and what is said if they do not."""

from types import MappingProxyType
from typing import Protocol, runtime_checkable

import pytest

from thali import IBP, CollapsedGibbs, LinearGaussian
from thali.core.model import check_composition, compatible, lacking
from thali.core.observation import Engine, Observation
from thali.errors import IncompatibleModelError, InvalidParameterError
from thali.priors import BetaBernoulli
from thali.running.choose import choose
from thali.storage.fit import Choice


@runtime_checkable
class Red(Protocol):
    def red(self) -> None: ...


@runtime_checkable
class Blue(Protocol):
    def blue(self) -> None: ...


class RedPart:
    """A prior with one capability."""

    def red(self):
        """Have the capability."""


class BluePart:
    """A prior with the other."""

    def blue(self):
        """Have the capability."""


class RedAndBlue(Engine):
    def red(self):
        """Have the capability."""

    def blue(self):
        """Have the capability."""


class BlueData(Observation):
    """An observation with an engine of one kind; it is asked for no other, whatever that engine can do."""

    engines = MappingProxyType({Blue: RedAndBlue})


class BothData(Observation):
    engines = MappingProxyType({Red: RedAndBlue, Blue: RedAndBlue})


class BareData(Observation):
    """Without engines, though it has the methods itself."""

    def red(self):
        """Not asked."""

    def blue(self):
        """Not asked."""


class NeedsRedAndBlue:
    needs_prior = (Red,)
    needs_observation = (Red, Blue)


class NeedsRed:
    needs_prior = (Red,)
    needs_observation = ()


class NeedsNothing:
    needs_prior = ()
    needs_observation = ()


def test_nothing_is_lacking_when_all_fits():
    assert lacking(RedPart(), BothData(), NeedsRedAndBlue()) == []
    check_composition(RedPart(), BothData(), NeedsRedAndBlue())


def test_the_error_names_all_that_is_missing_and_what_fits():
    alternatives = [NeedsRedAndBlue(), NeedsRed(), NeedsNothing()]
    with pytest.raises(IncompatibleModelError) as caught:
        check_composition(BluePart(), BlueData(), NeedsRedAndBlue(), alternatives)
    lines = str(caught.value).splitlines()
    assert lines == [
        "NeedsRedAndBlue needs a prior with `Red`, which BluePart does not provide.",
        "NeedsRedAndBlue needs an observation with `Red`, which BlueData does not provide.",
        "Inference that fits BluePart x BlueData: NeedsNothing.",
    ]


def test_several_missing_capabilities_are_named_at_once():
    class Bare:
        pass

    with pytest.raises(IncompatibleModelError, match="an observation with `Red` and `Blue`, which BareData"):
        check_composition(RedPart(), BareData(), NeedsRedAndBlue())
    with pytest.raises(IncompatibleModelError, match="none yet"):
        check_composition(Bare(), BareData(), NeedsRedAndBlue(), [NeedsRed()])


def test_the_error_is_a_type_error():
    with pytest.raises(TypeError):
        check_composition(BluePart(), BlueData(), NeedsRed())


def test_an_engine_is_made_once_from_its_model():
    model = BothData()
    assert model.engine(Red) is model.engine(Red)
    assert model.engine(Red).model is model
    assert not BlueData().has(Red)
    with pytest.raises(IncompatibleModelError, match="BlueData has no engine of the kind Red"):
        BlueData().engine(Red)


def test_compatible_lists_the_triples_that_fit():
    red, other, blue, both = RedPart(), BluePart(), BlueData(), BothData()
    a, b = NeedsRedAndBlue(), NeedsRed()
    found = compatible([red, other], iter([blue, both]), iter([a, b]))
    assert found == [(red, blue, b), (red, both, a), (red, both, b)]


@pytest.mark.parametrize("prior", [IBP(), BetaBernoulli()])
def test_the_real_components_fit(prior):
    assert lacking(prior, LinearGaussian(), CollapsedGibbs()) == []


def test_choice_of_inference():
    chosen = choose("auto", IBP(), LinearGaussian(), 50, 4)
    assert isinstance(chosen, Choice)
    assert chosen.inference == CollapsedGibbs()
    assert "CollapsedGibbs" in chosen.reason
    mine = CollapsedGibbs(n_draws=7)
    assert choose(mine, IBP(), LinearGaussian(), 50, 4) == Choice(mine, "CollapsedGibbs: as asked")


@pytest.mark.parametrize("inference", ["gibbs", "", 3, None, CollapsedGibbs, IBP()])
def test_what_is_no_inference_is_refused(inference):
    with pytest.raises(InvalidParameterError, match="Got"):
        choose(inference, IBP(), LinearGaussian(), 50, 4)


@pytest.mark.parametrize("inference", ["auto", CollapsedGibbs()])
def test_a_misfit_is_refused(inference):
    with pytest.raises(IncompatibleModelError, match="`Predictive`, which BluePart does not provide"):
        choose(inference, BluePart(), LinearGaussian(), 50, 4)

"""Whether prior, observation and inference fit, and what is said if they do not."""

from typing import Protocol, runtime_checkable

import pytest

from thali import IBP, CollapsedGibbs, LinearGaussian
from thali.core.model import check_composition, compatible, lacking
from thali.errors import IncompatibleModelError, InvalidParameterError
from thali.priors import BetaBernoulli
from thali.running.choose import Choice, choose


@runtime_checkable
class Red(Protocol):
    def red(self) -> None: ...


@runtime_checkable
class Blue(Protocol):
    def blue(self) -> None: ...


class RedPart:
    def red(self):
        """Have the capability."""


class BluePart:
    def blue(self):
        """Have the capability."""


class BothParts(RedPart, BluePart):
    """Have both."""


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
    assert lacking(RedPart(), BothParts(), NeedsRedAndBlue()) == []
    check_composition(RedPart(), BothParts(), NeedsRedAndBlue())


def test_the_error_names_all_that_is_missing_and_what_fits():
    alternatives = [NeedsRedAndBlue(), NeedsRed(), NeedsNothing()]
    with pytest.raises(IncompatibleModelError) as caught:
        check_composition(BluePart(), BluePart(), NeedsRedAndBlue(), alternatives)
    lines = str(caught.value).splitlines()
    assert lines == [
        "NeedsRedAndBlue needs a prior with `Red`, which BluePart does not provide.",
        "NeedsRedAndBlue needs an observation with `Red`, which BluePart does not provide.",
        "Inference that fits BluePart x BluePart: NeedsNothing.",
    ]


def test_several_missing_capabilities_are_named_at_once():
    class Bare:
        pass

    with pytest.raises(IncompatibleModelError, match="an observation with `Red` and `Blue`, which Bare"):
        check_composition(RedPart(), Bare(), NeedsRedAndBlue())
    with pytest.raises(IncompatibleModelError, match="none yet"):
        check_composition(Bare(), Bare(), NeedsRedAndBlue(), [NeedsRed()])


def test_the_error_is_a_type_error():
    with pytest.raises(TypeError):
        check_composition(BluePart(), BluePart(), NeedsRed())


def test_compatible_lists_the_triples_that_fit():
    red, blue, both = RedPart(), BluePart(), BothParts()
    a, b = NeedsRedAndBlue(), NeedsRed()
    found = compatible([red, blue], iter([blue, both]), iter([a, b]))
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

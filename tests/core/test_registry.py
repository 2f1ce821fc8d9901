"""Names of types in files: one for each, from outside only what was registered, and nothing imported by a file."""

from typing import NamedTuple

import pytest

import thali
from thali.core.registry import kind_of, name_of, stored
from thali.errors import InvalidFileError, InvalidParameterError
from thali.storage.old_names import OLD_NAMES
from thali.storage.packing import pack, unpack


class Point(NamedTuple):
    x: float


def test_a_registered_type_comes_back() -> None:
    with pytest.raises(TypeError, match=r'@thali.register\("\w+\.Point"\) above its class'):
        name_of(Point)
    with pytest.raises(TypeError, match="has no name in files"):
        pack([Point(1.5)], "x", {})
    assert thali.register("here.Point")(Point) is Point
    form = pack([Point(1.5)], "x", {})
    assert form["kind"] == "tuple here.Point"
    assert unpack(form, {}, 1) == [Point(1.5)]
    thali.register("here.Point")(Point)  # a cell of a notebook that is run again


def test_a_name_stands_for_one_type() -> None:
    class Other(NamedTuple):
        x: float

    thali.register("here.Point")(Point)
    with pytest.raises(InvalidParameterError, match="is taken by"):
        thali.register("here.Point")(Other)
    with pytest.raises(InvalidParameterError, match="is taken by"):
        stored("IBP")(Other)


@pytest.mark.parametrize("name", ["Point", "", ".", 3])
def test_names_from_outside_have_a_dot(name: object) -> None:
    with pytest.raises(InvalidParameterError, match="with a dot in it"):
        thali.register(name)(Point)  # type: ignore[arg-type]


def test_an_unknown_name_says_what_to_do() -> None:
    with pytest.raises(InvalidFileError, match=r"'other\.Model' that this version does not know: import the module"):
        unpack({"kind": "tuple other.Model", "parts": [["x", {"value": 1.0}]]}, {}, 1)


def test_old_names_stand_for_types_of_today() -> None:
    assert all(kind_of(name) is not None for name in OLD_NAMES.values())

"""What the docs say is so: the generated table is up to date and the README's code runs."""

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import thali

ROOT = Path(__file__).resolve().parents[1]


def test_compatibility_table_is_up_to_date():
    result = subprocess.run([sys.executable, ROOT / "docs/build.py", "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("index", range(2))
def test_readme_code_runs(index, tmp_path, monkeypatch):
    """The first block finds four images; the second is a model to fit."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    names: dict = {}
    exec("import thali\n" + blocks[index], names)
    if index == 0:
        assert names["model"].n_components_ == 4
        assert (tmp_path / "bars.thali").exists()


def _is_public_spec(name):
    return inspect.isclass(getattr(thali, name)) and dataclasses.is_dataclass(getattr(thali, name))


@pytest.mark.parametrize("name", ["LatentFeatures", *filter(_is_public_spec, thali.__all__)])
def test_every_parameter_is_explained(name):
    """As numpydoc writes it, so that scikit-learn's page of an estimator shows it."""
    part = getattr(thali, name)
    wanted = [p.name for p in inspect.signature(part).parameters.values()]
    section = inspect.getdoc(part).partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^(\w+) : \S", section, flags=re.MULTILINE)) == sorted(wanted)
    assert len(re.findall(r"^    \S.*", section, flags=re.MULTILINE)) >= len(wanted)


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_contributing_speaks_of_files_that_are_there():
    """Whatever stands in backticks and looks like a path in the repository is one."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:src|tests|docs)/[\w/.-]+)`", text)
    assert len(paths) >= 8
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_contributing_names_what_there_is():
    import thali.testing
    from thali.core import spec
    from thali.core.protocols import inference
    from thali.inference.samplers.chain import ZChain

    text = (ROOT / "CONTRIBUTING.md").read_text()
    for name in ("check_prior", "check_observation", "check_inference", "geweke", "sbc", "flow_test", "z_limit"):
        assert f"`{name}`" in text
        assert name in thali.testing.__all__
    for name, home in (
        ("ScalarHypers", spec),
        ("Optimiser", inference),
        ("Streaming", inference),
        ("Blockwise", inference),
    ):
        assert f"`{name}`" in text
        assert hasattr(home, name)
    assert "`sweep`" in text
    assert hasattr(ZChain, "sweep")
    for verb in re.findall(r"dev\.py ([\w-]+)", text):
        assert f'"{verb}"' in (ROOT / "dev.py").read_text()

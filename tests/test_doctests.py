"""The examples in docstrings are true, and every public function and value of privacy has one.

They run in a folder of their own, with a ledger of their own, without models. ``rows``, ``columns`` and ``made`` are
what :mod:`understudy.api` says they are.
"""

from __future__ import annotations

import doctest
import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from clinic import FakeChat
from run_fixtures import few_words
from word_embedder import WordEmbedder

import understudy as us
import understudy.models.catalog
from understudy import api
from understudy.base.errors import UnderstudyWarning

SOURCE = Path(us.__file__).parent
MODULES = [
    ".".join(("understudy", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for file in sorted(SOURCE.rglob("*.py"))
    if ">>> " in file.read_text("utf-8")
]
# Values of privacy/ that hold private data, or that only another function of their module makes.
OF_PRIVATE_VALUES = {"AddedCharges", "Draws", "Run", "Sample", "SampleOf", "SealedValue"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What examples find, in a folder where they may write."""
    with pytest.MonkeyPatch.context() as patch, few_words():
        folder = tmp_path_factory.mktemp("examples")
        patch.chdir(folder)
        patch.delenv("UNDERSTUDY_LEDGER", raising=False)
        patch.setattr("understudy.ledger.location.state_folder_location", lambda: str(folder / "ledger.sqlite"))
        patch.setattr(understudy.models.catalog, "load_embedder", lambda *_, **__: WordEmbedder())
        patch.setattr(understudy.models.catalog, "load_chat", lambda *_, **__: FakeChat())
        given: dict[str, Any] = {"us": us}
        texts = f"{api.__doc__}\n{inspect.getdoc(api.run)}"
        source = "".join(example.source for example in doctest.DocTestParser().get_examples(texts))
        with pytest.warns(UnderstudyWarning, match="The new ledger|Noise"):
            exec(compile(source, "examples", "exec"), given)
        yield given


@pytest.mark.filterwarnings("ignore::understudy.base.errors.UnderstudyWarning")
@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_are_true(module: str, shown: dict[str, Any]) -> None:
    found = doctest.testmod(import_module(module), extraglobs=shown)
    assert found.attempted
    assert not found.failed


def has_example(thing: object) -> bool:
    return bool(doctest.DocTestParser().get_examples(inspect.getdoc(thing) or ""))


def test_every_public_function_has_an_example() -> None:
    functions = {name: each for name in dir(us) if inspect.isfunction(each := getattr(us, name))}
    assert len(functions) > 12
    assert not [name for name, each in functions.items() if not has_example(each)]


def test_every_value_of_privacy_has_an_example() -> None:
    for file in (SOURCE / "privacy").rglob("*.py"):
        import_module(".".join(("understudy", *file.relative_to(SOURCE).with_suffix("").parts)))
    values = {
        each
        for name, module in sys.modules.items()
        if name.startswith("understudy.privacy.")
        for each in vars(module).values()
        if inspect.isclass(each) and is_dataclass(each) and each.__module__ == name and each.__name__[0] != "_"
    }
    assert len(values) > 30
    assert {each.__name__ for each in values if not has_example(each)} == OF_PRIVATE_VALUES

"""The documentation as a site, and the README as a package index shows it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

import understudy

ROOT = Path(__file__).parents[1]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
REPOSITORY: str = SETTINGS["project"]["urls"]["Repository"]
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']([^"']+)|<link\b[^>]*\bhref=["']([^"']+)"""
)
FETCHED_BY_STYLE = re.compile(r"(?:@import\s+|url\()\s*[\"']?([^\"')\s]+)")


def test_the_navigation_lists_every_page_once() -> None:
    text = (ROOT / "docs" / "README.md").read_text("utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, re.MULTILINE)
    assert len(listed) == len(set(listed))
    pages = {page.name for page in ROOT.glob("docs/*.md")} - {"README.md"}
    beside = {f"../{name}" for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}
    assert set(listed) == pages | beside | {
        *(
            "../examples/README.md",
            "../benchmarks/README.md",
            "../benchmarks/beside.md",
            "../benchmarks/papers.md",
            "../benchmarks/performance.md",
            "../benchmarks/steps.md",
            "../benchmarks/writer.md",
            "../training/README.md",
            "decisions/README.md",
        )
    }


def test_the_index_of_decisions_lists_every_page() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"\]\((0[^)]+)\)", (folder / "README.md").read_text("utf-8"))
    assert listed == sorted(page.name for page in folder.glob("0*.md"))


def test_the_python_page_lists_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    named = re.findall(r"^\.\. auto(?:function|class):: (\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(set(dir(understudy)) - {"__version__", "ledger"})
    assert ".. automodule:: understudy.ledger.verbs" in text


@pytest.mark.parametrize(
    "method", sorted(SETTINGS["project"]["entry-points"]["understudy.methods"].keys() - {"nonprivate-finetune"})
)
def test_the_page_of_a_method_says_what_differs_from_the_paper(method: str) -> None:
    text = (ROOT / "docs" / f"{method}.md").read_text("utf-8")
    assert re.search(r"^## What differs from (the papers?|private evolution)$", text, re.MULTILINE)


def readme_on_the_index() -> str:
    text = (ROOT / "README.md").read_text("utf-8")
    for each in SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    return text


def test_every_link_of_the_readme_on_an_index_is_an_address_in_the_repository() -> None:
    elsewhere = re.findall(r"\]\((https://[^)\s]+)\)", (ROOT / "README.md").read_text("utf-8"))
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", readme_on_the_index())
    assert len(links) > 30
    for image, link in links:
        if link in elsewhere:
            continue
        beginning = f"{REPOSITORY}/raw/main/" if image else (f"{REPOSITORY}/blob/main/", f"{REPOSITORY}#")
        assert link.startswith(beginning), link
        path = link.removeprefix(REPOSITORY).removeprefix("/raw/main/").removeprefix("/blob/main/").partition("#")[0]
        assert (ROOT / path).exists(), link


def test_all_addresses_of_the_project_are_on_one_host() -> None:
    addresses = SETTINGS["project"]["urls"]
    assert addresses["Issues"].startswith(REPOSITORY)
    assert addresses["Changelog"].startswith(REPOSITORY)


def test_ci_runs_on_every_python_that_the_metadata_name() -> None:
    named = [each.rpartition(" ")[2] for each in SETTINGS["project"]["classifiers"] if "Python :: 3." in each]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == named


@pytest.mark.skipif(find_spec("sphinx") is None, reason="needs the extra docs")
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site"
    flags = ["--fail-on-warning", "--keep-going", "--quiet", "--fresh-env"]
    command = [sys.executable, "-m", "sphinx", "-c", "docs", *flags, "-d", str(tmp_path / "cache"), ".", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (site / "searchindex.js").is_file()
    assert (site / "docs" / "README.html").is_file()
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        for fetched in FETCHED.findall(page.read_text("utf-8")):
            assert "//" not in "".join(fetched), (page, fetched)
    for style in site.rglob("*.css"):
        assert not [url for url in FETCHED_BY_STYLE.findall(style.read_text("utf-8")) if "//" in url], style

"""The words are ordinary technical English: phrases of the older pages' dialect do not come back.

``ROOTS`` are the pages that are checked, ``SOURCES`` the folders of src whose strings, docstrings, comments and
templates are. What is quoted from a program (code, inline code, links' addresses) and, on pages, what is made of
docstrings is left out.
"""

from __future__ import annotations

import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Globs below the repository's root; benchmarks/writer.md quotes texts that models wrote.
ROOTS = ["README.md", "docs/*.md", "docs/decisions/*.md", "benchmarks/[!w]*.md"]
# Folders of src/understudy.
SOURCES = sorted(path.name for path in (ROOT / "src" / "understudy").iterdir() if (path / "__init__.py").exists())
_BE = "(?:is|are|was|were)"
_MADE = "Protected|Taken|Released|Told|Kept|Refused|Left|Asked|Made|Given|Drawn|Shown|Counted|Read|Stored|Meant|Needed"
_BOX = "file|folder|table|page|record|text|ledger|database|prompt|release|Release|column|row|list|owner|zip|report"
# Why a phrase is refused, and the pattern of its kind.
DIALECT = {
    "a sentence begins with its participle": rf"(?:^|[.:;!?|]\s+)(?:{_MADE}) {_BE}\b",
    "'none' for 'not a'": rf"\b[Nn]one (?:where|of what|of which)\b|(?<![Tt]here )\b{_BE} none\b"
    rf"|(?<![Tt]here )\b{_BE} no (?!longer|more|less|better|worse|fewer|larger|smaller|different|matter|such|one\b)",
    "'take' for 'suppose'": r"\bTake (?:any (?:one|two)|everything|all that)\b",
    "'stand' for 'be'": r"\b[Ss]t(?:ands?|ood|anding)\b(?!-ins?\b| (?:in\b|for\b|still))",
    "'lie' for 'be'": r"\b(?:lies?|lay|lying) (?:in|on|at|there|where|outside|within|beside|below|among)\b",
    "'of its own'": r"\bof (?:its|their|his|her|our) own\b(?! [a-z])",
    "'beside'": r"\b[Bb]eside\b(?!:)",
    "'so' for 'such' or 'this'": r"\bso (?:many|much|few) of\b|\bso (?:made|said|told)\b",
    "'that which' and 'whoever'": r"\b(?:that which|[Ww]hoever|whomever|whosever)\b|\b(?:all|those) that their\b",
    "'what' as a noun": r"\b[Ww]hat (?:stands|lies|holds|leaves|came|goes|was not used|sets|one (?:owner|text|unit))\b"
    r"|\b(?:of|than) what (?:is|was|are|were) (?:no|not)\b",
    "'told' for 'distinguished' or 'reported'": r"\b(?:is|are|be|was|were|being|been) told\b|\btold (?:apart|by)\b",
    "'hold' for 'contain'": rf"\b(?:{_BOX})s? holds?\b",
    "'pay' for 'be worth it'": r"\b(?:it|that|they|which|guide) pays?\b(?! (?:for|with|out))",
    "'mend' for 'fix'": r"\bmend(?:s|ed|ing)?\b",
    "'hang on' for 'depend on'": r"\b(?:hangs?|hung) on\b",
    "'another' for 'different'": r"\b(?:is|are) another(?:'s| thing| matter)\b",
    "'maker' for 'sender'": r"\b(?:its|their|whose) makers?\b",
    "'writes its words apart'": r"\bwords apart\b",
    "'the half of'": r"\b[Tt]he half of\b",
    "a plural in brackets": r"(?<![\w(])(?!sqrt|http)[a-z]{3,}\(e?s\)",
    "the verb comes before who acts": r"\bsays shows?\b|\bnobody gets\b|\bShares are of\b|\bholds is\b",
}


def prose(text: str) -> str:
    text = re.sub(r"<!-- parameters -->.*?<!-- end of parameters -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```|^    .*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`|\]\([^)\s]*\)|<[^>\n]*>", "_", text)


def dialect(text: str) -> list[tuple[str, str]]:
    """Every phrase of the dialect in a text, with the reason."""
    return [
        (reason, found[0].strip("|:;. \n"))
        for reason, pattern in DIALECT.items()
        for found in re.finditer(pattern, text, re.MULTILINE)
    ]


def test_every_kind_of_dialect_is_found() -> None:
    for once in Path(__file__).with_name("dialect.txt").read_text("utf-8").splitlines():
        assert dialect(once), once


def test_plain_english_is_accepted() -> None:
    for plain in (
        "Good: common themes will come through. This says nothing about how the texts read.",
        "Weak: noise nearly drowns the data. About 3,600 customers would be enough.",
        "Each customer is protected as a whole; at most 5 of their messages were used.",
        "Adding or removing any one customer changes the odds. There is no such file, and it is no longer needed.",
        "The notes stand in for your table. The bound holds for every run. A customer pays for a call.",
        "Return None if a field is missing. The budget is held back. What was released is listed below.",
        "`stands beside` is quoted, and a [link](beside.md) has an address.",
    ):
        assert dialect(prose(plain)) == [], plain


@pytest.mark.parametrize(
    "page", sorted(page for root in ROOTS for page in ROOT.glob(root)), ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_page_is_in_plain_english(page: Path) -> None:
    assert dialect(prose(page.read_text("utf-8"))) == []


_STRING = re.compile(r"([a-zA-Z]*)(\"\"\"|'''|\"|')(.*)\2", re.DOTALL)
_VALUE = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")


def told(source: str) -> Iterator[tuple[int, str]]:
    """Yield every string (adjacent ones joined, f-strings without values) and comment of a module, with its line."""
    joined: list[str] = []
    line = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING and (found := _STRING.fullmatch(token.string)):
            line = line if joined else token.start[0]
            joined.append(_VALUE.sub("_", found[3]) if "f" in found[1].lower() else found[3])
        elif token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
        elif token.type != tokenize.NL and joined:
            text, joined = inspect.cleandoc("".join(joined)), []
            if not text.isidentifier():
                yield line, text


def source_prose(text: str) -> str:
    """Return a string or comment without inline code and tags; a docstring's indented lines are prose, too."""
    return re.sub(r"``?[^`]*``?|<[^>\n]*>", "_", text)


def source_dialect(path: Path) -> list[tuple[int, str, str]]:
    """Return the line of every phrase of the dialect in a module or template, with the reason."""
    text = path.read_text("utf-8")
    found = told(text) if path.suffix == ".py" else [(0, re.sub(r"\{[{%#].*?[}%#]\}", "_", text, flags=re.DOTALL))]
    return [(line, *phrase) for line, each in found for phrase in dialect(source_prose(each))]


def test_strings_docstrings_and_comments_of_a_module_are_read(tmp_path: Path) -> None:
    module, template = tmp_path / "module.py", tmp_path / "page.html"
    lines = [
        '"""Return it.\n\n    Args:\n        a: None where it is none.\n    """',
        "x = 1  # what stands here",
        'f(f"{x!r}: the tab" "le holds no text.", "`stands beside` is code")',
    ]
    module.write_text("\n".join(lines), "utf-8")
    template.write_text("<p class='beside'>{{ beside }} One value stands here.</p>", "utf-8")
    assert [(line, phrase) for line, _, phrase in source_dialect(module)] == [
        (1, "None where"),
        (1, "is none"),
        (6, "stands"),
        (6, "what stands"),
        (7, "table holds"),
    ]
    assert [phrase for _, _, phrase in source_dialect(template)] == ["stands"]


@pytest.mark.parametrize("folder", SOURCES)
def test_the_words_of_a_source_folder_are_plain_english(folder: str) -> None:
    files = [path for path in (ROOT / "src" / "understudy" / folder).rglob("*") if path.suffix in (".py", ".html")]
    assert files
    assert {str(path.relative_to(ROOT)): found for path in files if (found := source_dialect(path))} == {}


def words(page: Path) -> int:
    return sum(any(map(str.isalnum, word)) for word in page.read_text("utf-8").split())


def test_decisions_are_few_and_short() -> None:
    pages = list(ROOT.glob("docs/decisions/[0-9]*.md"))
    assert len(pages) <= 40
    assert {page.name: words(page) for page in pages if words(page) > 250} == {}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 700


def test_the_docs_stay_short() -> None:
    """As ``wc -w`` counts them, with code and generated lists; and their prose alone."""
    pages = [page.read_text("utf-8") for page in ROOT.glob("docs/*.md")]
    assert sum(len(page.split()) for page in pages) <= 45_000
    assert sum(any(map(str.isalnum, word)) for page in pages for word in prose(page).split()) <= 33_000


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_a_page_is_of_one_kind(page: Path) -> None:
    if page.name != "README.md":
        assert len(re.findall(r"^\*(?:Tutorial|How-to|Reference|Explanation)[.,]", page.read_text("utf-8"), re.M)) == 1

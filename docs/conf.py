"""How ``make docs`` builds the site from the pages as they stand in the repository. It needs no network.

The repository is the source folder, so that every link works here as it does there. The navigation is
``docs/README.md``: a heading is a section, and its links are the pages. A linked source file becomes a page.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from inspect import isfunction
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri

from understudy import api

ROOT = Path(__file__).parents[1]
COPIED = "docs/_site/root/"
NAVIGATION: dict[tuple[Any, ...], str] = {}
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

project = METADATA["name"]
version = release = METADATA["version"]
copyright = "The understudy authors"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = ["*.md", "docs/**.md", "examples/*.md", "benchmarks/*.md", "training/*.md"]
exclude_patterns = [".*", "build", "dist", "out", "src", "tests", "docs/_site"]
root_doc = "docs/README"
suppress_warnings = ["misc.highlighting_failure"]  # a block in a language without colours is no fault

myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "understudy"
html_static_path = ["_site/static"]
html_extra_path = ["_site/root"]  # index.html, which leads to the root page, and reports for the gallery
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Makes hidden tables of contents out of the root page's headings and links. The decisions' page lists them all;
    the search lists none of them."""
    if page.startswith("docs/decisions/"):
        source[0] = f"---\nno-search: true\n---\n\n{source[0]}"
    if page == "docs/decisions/README":
        source[0] += "\n```{toctree}\n:glob:\n:maxdepth: 1\n\n[0-9]*\n```\n"
    if page != root_doc:
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
        caption = section.partition("\n")[0]
        links = re.findall(r"^(?:\| |- )\[([^\]]+)\]\(([^)#]+\.md)\)", section, re.MULTILINE)
        entries = "\n".join(f"{title} <{path.removesuffix('.md')}>" for title, path in links)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def source_page(path: str) -> str:
    return f"source/{path}"


def link_to_sources(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Links of pages to files that are no pages lead to :func:`source_pages`, or to the copy of a file in the site."""
    for node in list(tree.findall(addnodes.download_reference)):
        file = (ROOT / page).parent.joinpath(node["reftarget"]).resolve().relative_to(ROOT).as_posix()
        if file.startswith(COPIED):
            target = file.removeprefix(COPIED)
        else:
            app.env.linked_sources.add(file)  # type: ignore[attr-defined]
            target = app.builder.get_target_uri(source_page(file))
        uri = relative_uri(app.builder.get_target_uri(page), target)
        node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=uri))


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    for file in sorted(app.env.linked_sources):  # type: ignore[attr-defined]
        try:
            lexer = get_lexer_for_filename(file)
        except ClassNotFound:
            lexer = TextLexer()
        text = highlight((ROOT / file).read_text("utf-8"), lexer, HtmlFormatter(anchorlinenos=True, lineanchors="line"))
        yield source_page(file), {"title": file, "body": f"<h1>{file}</h1>{text}"}, "page.html"


def remember_sources(app: Sphinx) -> None:
    app.env.linked_sources = set()  # type: ignore[attr-defined]


def share_navigation(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Let source pages of one depth share their navigation, which takes longer to make than the rest of a page: its
    links lead out of ``source/``, so that they differ by the depth alone."""
    own = context["toctree"]

    def shared(**options: Any) -> str:
        key = (page.count("/"), *sorted(options.items()))
        if key not in NAVIGATION:
            NAVIGATION[key] = own(**options)
        return NAVIGATION[key]

    if page.startswith(source_page("")):
        context["toctree"] = shared


def cut_options(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """What ``help()`` lists of a verb has a page of its own."""
    if "Options:" in lines:
        del lines[lines.index("Options:") :]


def show_written_signatures() -> None:
    """Gives the verbs the signatures of their source, with ``**options``, in place of those with every option."""
    for verb in vars(api).values():
        if isfunction(verb):
            vars(verb).pop("__signature__", None)


def setup(app: Sphinx) -> None:
    show_written_signatures()
    app.connect("autodoc-process-docstring", cut_options, priority=400)  # before Napoleon
    app.connect("builder-inited", remember_sources)
    app.connect("source-read", add_navigation)
    app.connect("doctree-resolved", link_to_sources)
    app.connect("html-collect-pages", source_pages)
    app.connect("html-page-context", share_navigation, priority=400)  # before the theme

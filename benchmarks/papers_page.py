"""``papers.md``: the paper's tables beside ours, from ``results/beside/dp-kde.json`` alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.results import FOLDER, Row

PAGE = Path(__file__).parent / "papers.md"
RESULTS = "beside/dp-kde"
SIZES = {"dbpedia14": 14_612, "simulated": 560_000}
BUDGETS = ((1, 5), (5, 5), (1, 10), (5, 10))
PAPER = {
    "table 5, without a language model": (0.717, 0.815, 0.806, 0.842),
    "table 6, independent": (0.302, 0.263, 0.290, 0.271),
    "table 6, iterative": (0.779, 0.804, 0.824, 0.851),
    "table 4, with Deep CORAL": (0.779, 0.804, 0.824, 0.851),
    "table 4, without": (0.728, 0.771, 0.770, 0.812),
    "table 2, AugPE+V~, 100 texts a label": (0.457, 0.467, 0.387, 0.348),
    "table 2, AugPE+V~, 1,000 texts a label": (0.793, 0.763, 0.794, 0.805),
}
"""KPS, arXiv:2502.13193, DBpedia-14: 560,000 records, 1,000 texts a label, tables 2, 4 and 6 with Claude 2."""
PAPER_8 = {"without examples": (0.770, 0.824), "with examples of the client": (0.796, 0.833)}
"""Table 8, at epsilon 1 + 10: without and with Deep CORAL."""
OURS: dict[str, Row] = {
    "dp-kde, Laplace noise": {"method": "dp-kde", "mode": "independent", "noise": "laplace", "contrast": 0},
    "the same, bandwidth 1 as printed": {"noise": "laplace", "bandwidth": 1, "contrast": 0},
    "dp-kde, Gaussian noise": {"method": "dp-kde", "mode": "independent", "noise": "gaussian", "contrast": 0},
    "the same with contrast": {"method": "dp-kde", "mode": "independent", "noise": "gaussian", "contrast": 1},
    "dp-kde, iterative, Gaussian noise": {"mode": "iterative", "noise": "gaussian", "contrast": 0},
    "the same, iterative, with contrast": {"mode": "iterative", "noise": "gaussian", "contrast": 1},
    "dp-kps, the default method": {"method": "dp-kps"},
}
_WRITER = {"llm": "builtin", "per_label": 10}
_DP_KDE = {"method": "dp-kde", "contrast": 0, **_WRITER}
WRITTEN: dict[str, Row] = {
    "dp-kde, Gaussian noise": _DP_KDE,
    "the same with contrast": {**_DP_KDE, "contrast": 1},
    "dp-kps, the default method": {"method": "dp-kps", **_WRITER},
    "aug-pe with V~": {"method": "aug-pe", "rounds": 3, "variations": 2, **_WRITER},
}
BY_PROMPT: dict[str, Row] = {
    "dp-kde, a prompt without examples": {**_DP_KDE, "examples": 0},
    "dp-kde, a prompt with six texts of the client": {**_DP_KDE, "examples": 6},
    "dp-kde with contrast, a prompt without examples": {**_DP_KDE, "contrast": 1, "examples": 0},
    "dp-kde with contrast, a prompt with six texts of the client": {**_DP_KDE, "contrast": 1, "examples": 6},
    "dp-kde, the built-in writer, which takes no examples": _DP_KDE,
    "dp-kde with contrast, the built-in writer": {**_DP_KDE, "contrast": 1},
}
HEAD = """# Tables of papers, compared with ours

Made by `python -m benchmarks.papers page` from `results/beside/dp-kde.json`; `benchmarks/papers.py` says what was run
and how it is judged, and its command makes each row.

## DP-KPS on DBpedia-14

Accuracy by epsilon = epsilon_voc + epsilon_kde. The paper has 560,000 private records, 1,000 texts per label, Claude 2,
all-mpnet-base-v2, and pure epsilon. Our table has {count} records. Delta is 1e-6 with Gaussian noise and 0 with Laplace
noise. The vocabulary is the paper's (400,000 words of GloVe 6B), the embedder all-MiniLM-L6-v2.
[What differs](../docs/dp-kde.md#what-differs-from-the-paper).

Each run draws new noise. A cell is the mean of its runs, followed by the lowest and the highest where there are two or
more. A dash was not run.

In the first four tables nothing is written: classifiers are trained on {per_label} sequences per label.
"""
JUDGES = {
    "sequences": ("Table 5 and 6: trained on sequences, tested on the sequences of test records", range(3)),
    "network": ("The same by a network of three layers on the embedding of the sequence", ()),
    "texts": ("Table 4: trained on sequences, tested on real texts", (4,)),
    "coral": ("Table 4, with Deep CORAL on unlabelled texts of the client", (3,)),
}
BY_LLM = """## With a language model

The built-in model writes one text around each sequence. It has 135 million parameters, far fewer than Claude 2, and
each row has 10 texts per label (140 in all) where the paper has 1,000. No prompt names a label, as in the paper. The
judge is the network, tested on 1,400 real texts; Deep CORAL reads the other 1,400, which are the client's. Ten *real*
records per label, without privacy, reach {real}.
"Phrases alone" are the same sequences, not written.
"""
AUG_PE = """aug-pe has 3 rounds and 2 candidates for each of the 10 texts per label: 4 prompts per text where the paper
has 10. A subsample of {count} records is all that it reads, since embedding all of them took too long. Its keywords are
1,000 terms of V~, on which it spends a fifth of its budget (of mu squared). The paper does not say whether its figures
for AugPE are with Deep CORAL.
"""
CORAL = {
    "written": ("Tables 2 and 4: trained on written texts, tested on real texts", "texts", (4,)),
    "written coral": ("Tables 2 and 4, with Deep CORAL", "coral", (3, 5, 6)),
}
TABLE_8 = """### Table 8: examples of the client in the prompt, at epsilon 11 (1 + 10)

The client shows six of its texts, with the terms of V~ that they contain, in every prompt. They are among the texts
that Deep CORAL reads, and no judge tests on them.

| | without Deep CORAL | with |
|---|---|---|"""
NOT_RUN = """
**Results.** With the bandwidth of 1 that the paper prints, independent terms do as badly here as in its table 6:
the kernel is flat. With a bandwidth that tells terms apart, they are its best. Contrast gains most where real texts are
the test, and iterative sequences need it. With as many records as the paper has, Laplace noise does no harm. Deep CORAL
changes little with 100 sequences per label, and mostly costs accuracy with ten texts, also for real records. Our client
has the same kind of texts as the data holder, so there may be nothing to adapt to.

The built-in model, small as it is, loses little of what sequences say if their terms belong to their label: with
dp-kps, and with dp-kde with contrast, ten of its texts per label teach about as much as ten real records. It does not
repair sequences of mixed terms. With a prompt instead of the form of its training, the same model is far worse,
even with six texts of the client in the prompt. dp-kps, which counts exactly, is better than dp-kde by every judge at
100 sequences per label. Most cells are one run, and runs differ by two or three points.

**Not measured**, for lack of processor time: the dashes, which are aug-pe at three of the four budgets; second runs;
and written texts at the paper's count of 1,000 per label (a text takes about half a second of one core). The command
makes any of these rows; with `--llm` it takes larger models too.
"""


def _found(rows: Sequence[Row], wanted: Mapping[str, object], budget: tuple[int, int], corpus: str) -> list[Row]:
    default = {"bandwidth": None, "llm": None, "examples": None, "per_label": 100, "corpus": corpus}
    wanted = {**default, "voc": budget[0], "kde": budget[1], **wanted}
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def _cell(rows: Sequence[Row], judge: str) -> str:
    """The mean, and the range of several runs."""
    values = [row[judge] for row in rows if judge in row]
    spread = f" ({min(values):.3f}-{max(values):.3f})" if len(values) > 1 else ""
    return f"{mean(values):.3f}{spread}" if values else "-"


def _line(name: str, cells: Sequence[str | float]) -> str:
    return f"| {name} | " + " | ".join(each if isinstance(each, str) else f"{each:.3f}" for each in cells) + " |"


def page(rows: list[Row] | None = None) -> str:
    rows = rows if rows is not None else json.loads((FOLDER / f"{RESULTS}.json").read_text("utf-8"))
    return "\n".join(_parts(rows)) + "\n"


def _table(
    rows: Sequence[Row], title: str, judge: str, beside: Sequence[int], ours: Mapping[str, Row]
) -> Iterator[str]:
    yield f"### {title}\n\n| | " + " | ".join(f"{a + b} ({a} + {b})" for a, b in BUDGETS) + " |\n|---|---|---|---|---|"
    published = list(PAPER.items())
    yield from (_line(f"*paper, {published[place][0]}*", published[place][1]) for place in beside)
    yield from _lines(rows, judge, ours)


def _lines(rows: Sequence[Row], judge: str, ours: Mapping[str, Row]) -> Iterator[str]:
    for name, wanted in ours.items():
        found = [_found(rows, wanted, budget, "dbpedia14") for budget in BUDGETS]
        if any(judge in row for each in found for row in each):
            yield _line(name, [_cell(each, judge) for each in found])


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    yield HEAD.format(count=f"{SIZES['dbpedia14']:,}", per_label=100)
    for judge, (title, beside) in JUDGES.items():
        yield from _table(rows, title, judge, tuple(beside), OURS)
        yield ""
    yield "### As many records as the paper has\n"
    yield (
        f"{SIZES['simulated']:,} records, each one of the {SIZES['dbpedia14']:,} with every fifth word left out by "
        "chance: simulated, since the whole set is not at hand. By the judge of table 5, and by the network. Rows with "
        "Laplace noise are pure epsilon.\n"
    )
    yield "| | epsilon | sequences | network | texts |\n|---|---|---|---|---|"
    for budget, figure in zip(BUDGETS, PAPER["table 5, without a language model"], strict=True):
        yield f"| *paper, table 5* | {sum(budget)} | {figure:.3f} | | |"
        simulated = [row for row in rows if row["corpus"] == "simulated" and (row["voc"], row["kde"]) == budget]
        for what in dict.fromkeys(map(_named, simulated)):
            same = [row for row in simulated if _named(row) == what]
            cells = [_cell(same, judge) for judge in ("sequences", "network", "texts")]
            yield _line(what, [str(sum(budget)), *cells])
    real = [row for row in rows if row["method"] == "real" and row["per_label"] == 10]
    yield ""
    reached = f"{_cell(real, 'written')} without Deep CORAL and {_cell(real, 'written coral')} with it"
    yield BY_LLM.format(real=reached)
    if voted := [row["records"] for row in rows if row["method"] == "aug-pe"]:
        yield AUG_PE.format(count=f"{voted[0]:,}")
    for judge, (title, of_phrases, beside) in CORAL.items():
        yield from _table(rows, title, judge, beside, WRITTEN)
        yield from _lines(rows, of_phrases, {f"{name}: phrases alone": each for name, each in WRITTEN.items()})
        yield ""
    by_prompt = {name: _found(rows, wanted, (1, 10), "dbpedia14") for name, wanted in BY_PROMPT.items()}
    if any(by_prompt.values()):
        yield TABLE_8
        yield from (_line(f"*paper, {name}*", figures) for name, figures in PAPER_8.items())
        yield from (_line(name, [_cell(each, judge) for judge in CORAL]) for name, each in by_prompt.items() if each)
    yield NOT_RUN


def _named(row: Row) -> str:
    return f"{row['method']}, {row['noise']} noise" + (", contrast" if row["contrast"] else "")


def write() -> None:
    PAGE.write_text(page(), "utf-8")

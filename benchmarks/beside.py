"""The page ``benchmarks/beside.md``, made from ``benchmarks/results``: losses first.

python -m benchmarks.beside
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.results import Result
from benchmarks.scaling import CASES

FOLDER = Path(__file__).parent
HEAD = """# Compared with other tools

Made by `python -m benchmarks.beside` from files in `benchmarks/results/`. What is not here has not been compared.

## Columns: what a classifier learns from 1,000 synthetic rows

`python -m benchmarks.beside_columns` says how each row is made. Epsilon 1, delta 1 / (n ln n), accuracy of a random
forest on real test rows, means of the runs with their standard deviation. *Tab-PE* is that of microsoft/DPSDA at the
settings of its own examples; it takes ranges and label counts from the private table without noise, which this
comparison allows. *AIM* is OpenDP's, over pairs. *Real* are 1,000 rows of the private table.

| table | understudy | Tab-PE | AIM | real | all real | understudy less the better |
|---|---|---|---|---|---|---|
"""
TITLES = {"characters": "artificial-characters (7 numbers, 10 labels)"}
TRIED = {
    "star": "pairs of each column with the label alone",
    "tree": "a tree of pairs",
    "pairs": "pairs selected, no threes (before decision 048)",
}


def _title(table: str) -> str:
    count = table.partition(":")[2]
    return TITLES.get(table) or f"XOR of {count} column{'s' if count != '1' else ''}"


def columns(rows: list[Mapping[str, Any]]) -> str:
    """The table, by how much is lost, and what was tried where it is more than 5 points."""
    by = {(row["table"], row["way"], row.get("bins", 16)): row for row in rows}

    def told(table: str, way: str) -> str:
        row = by.get((table, way, 16))
        return "-" if row is None else f"{row['accuracy']:.3f}" + (f" ± {row['std']:.3f}" if row["runs"] > 1 else "")

    def lost(table: str) -> float:
        others = [by[table, way, 16]["accuracy"] for way in ("tab-pe", "opendp-aim") if (table, way, 16) in by]
        return float(by[table, "ours", 16]["accuracy"] - max(others))

    compared = sorted({row["table"] for row in rows if row["way"] == "tab-pe"}, key=lost)
    ways = ("ours", "tab-pe", "opendp-aim", "real", "real-all")
    lines = [
        f"| {_title(table)} | {' | '.join(told(table, way) for way in ways)} | {lost(table):+.3f} |"
        for table in compared
    ]
    tried = [
        f"- {_title(row['table'])}: {TRIED.get(row['way'], 'pairs and threes')}, at most {row.get('bins', 16)} "
        f"values of a column: {row['accuracy']:.3f} (runs: {row['runs']})"
        for row in rows
        if row["way"] in TRIED or (row["way"] == "ours" and row.get("bins", 16) != 16)
    ]
    return "\n".join([*lines, "", "Tried where we are behind:", "", *tried])


TAIL = """
Sets of three were added for XOR of 2 and artificial-characters. [Decision
048](../docs/decisions/048-more-pairs-than-a-tree.md) has the effect of each step. The present limit: XOR of 3 needs
four columns at once, which in 16 bins have 8,192 cells for 10,000 records, and noise at epsilon 1 hides them. Tab-PE
evolves whole rows by votes for the nearest row, which compare all columns at once if there are few. About ten
variants were compared on the test rows of artificial-characters, so our figure there is a little optimistic.
"""


def costs(rows: list[Mapping[str, Any]]) -> str:
    """What rows cost beside the others, and what records and texts cost here."""
    ways = ("ours", "tab-pe", "opendp-aim")
    seconds = {(row["table"], row["way"]): row["processor_seconds"] for row in rows if row.get("bins", 16) == 16}
    tables = sorted({table for table, way in seconds if way == "tab-pe"})
    told = [
        f"| {_title(table)} | {' | '.join(f'{seconds.get((table, way), math.nan):.0f}' for way in ways)} |".replace(
            "nan", "-"
        )
        for table in tables
    ]
    scaling, ratios = (Result.read(name).rows for name in ("scaling", "ratios"))
    million = [row for row in scaling if row["records"] == 10**6 and row["release"] != "label-counts"]
    releases = [
        f"| {CASES[row['release']].what} | {row['processor_seconds']:.0f} | {row['anonymous_mb']:.0f} |"
        for row in million
    ]
    each = {row["pair"]: row["seconds_per_unit"] for row in ratios}
    return COSTS.format(
        rows="\n".join(told),
        releases="\n".join(releases),
        embedded=1000 * each["embedding"],
        token=1000 * each["prediction"],
        gradient=1000 * each["gradients"],
    )


MEASURES = {
    "fid": ("Fréchet distance", -1, 3),
    "kernel": ("kernel distance x 1000", -1, 1),
    "precision": ("precision", 1, 3),
    "recall": ("recall", 1, 3),
    "coverage": ("coverage", 1, 3),
    "self_bleu": ("self-BLEU", -1, 3),
    "perplexity": ("next-word perplexity of the private texts", -1, 1),
    "cut": ("texts cut off", -1, 3),
    "words": ("words (real ones have more)", 1, 1),
    "processor_seconds": ("processor seconds", -1, 1),
    "gb": ("GB", -1, 2),
}
"""What each is called, whether more is better, and digits."""
WAYS = (("ours", 0.5), ("ours", 0.0), ("pe", 0.5), ("real", 0.5))
SETS = {"yelp_augpe": "Yelp reviews", "pubmed": "PubMed abstracts"}
LEVEL = 1.0
"""Spreads within which two means are called level."""


def evolution(rows: list[Mapping[str, Any]], votes: list[Mapping[str, Any]]) -> str:
    """A table per set, by what is lost."""
    tables = "\n".join(f"{_evolved(rows, name)}\n" for name in SETS)
    return EVOLUTION.format(survivors=SURVIVORS + _voted(votes), tables=tables)


def _voted(rows: list[Mapping[str, Any]]) -> str:
    """What the number of votes per record changes."""
    ks = sorted({row["nearest"] for row in rows})
    told = []
    for measure in ("fid", "precision", "recall", "coverage", "kernel"):
        title, _, digits = MEASURES[measure]
        of = [[row[measure] for row in rows if row["nearest"] == k] for k in ks]
        means, spread = [fmean(each) for each in of], fmean(stdev(each) for each in of)
        *first, last = (f"{value:.{digits}f}".removeprefix("0") for value in (*means, spread))
        told.append(f"{title} {', '.join(first)} (± {last})")
    text = VOTED.format(ks=", ".join(map(str, ks)), told="; ".join(told))
    return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False) + "\n"


def _evolved(rows: list[Mapping[str, Any]], table: str) -> str:
    lines = []
    for measure, (title, sign, digits) in MEASURES.items():
        of = [
            [
                row[measure]
                for row in rows
                if (row["table"], row["way"], row["blanks"]) == (table, *way) and measure in row
            ]
            for way in WAYS
        ]
        means, spreads = [fmean(each or [math.nan]) for each in of], [stdev(each) if each[1:] else 0 for each in of]
        cells = [
            "-" if not each else f"{mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if each[1:] else "")
            for each, mean, spread in zip(of, means, spreads, strict=True)
        ]
        less = means[0] - means[2]
        gain = sign * less / math.sqrt((spreads[0] ** 2 + spreads[2] ** 2) / 2)
        word = "lost" if gain < -LEVEL else "ahead" if gain > LEVEL else "level"
        lines.append((gain, f"| {title} | {' | '.join(cells)} | {word}: {less:+.{digits}f}, {abs(gain):.1f} spreads |"))
    return "\n".join([EVOLVED.format(title=SETS[table]), *(line for _, line in sorted(lines))])


EVOLVED = """**{title}**

| | understudy | understudy, no blanks | pe | real | understudy less pe |
|---|---|---|---|---|---|"""
EVOLUTION = """
## Texts: private evolution

aug-pe compared with `pe` of microsoft/DPSDA: the same built-in model, embedder, 240 first texts, budget and number of
calls (1,500 records, 60 texts, 3 rounds, epsilon 4, delta 1e-6); `python -m benchmarks.beside_texts` makes a row and
says what `pe` needs. Both blank half of the words, which is their default. Means of three seeds with their standard
deviations; a *spread* is the root mean square of the two, and a difference of less than one counts as level. *Real*
are 60 other texts, one sample. Measured on one H100, with more than a dozen processes on it and on its 16 cores.

{tables}
**Where pe is better.** On reviews, by more than a spread in six measures of quality: pe's texts are among real reviews
more often (precision; other real reviews have no more than ours), cover more of them, and have a smaller Fréchet
distance. Ours are ahead by kernel distance and recall. On abstracts our texts are shorter and we use 0.08 GB more: pe's
answers run to the limit of 100 tokens, and 44 % of them are cut there; ours end with their last whole sentence.

**Time.** Processor seconds are the host's; the model runs on the GPU. We did not examine why pe takes twice as many.
On two cores without a GPU, with an earlier version and one run of pe, the reviews took 218 s and 3.2 GB, and pe 793 s
and 8.6 GB.

**Tried where we are behind:**

- *No blanks*: the model rephrases each text. In the tables: coverage on reviews is level
  with pe's, precision gains .07, and Fréchet distance, self-BLEU and perplexity are worse on both sets.
{survivors}- *The writer* writes first texts and variations: Fréchet distance .70 instead of .60, precision .72
  instead of .85, more variety, a quarter of the processor time (one run on reviews;
  [decision 014](../docs/decisions/014-centred-votes.md)).
- Not tried: topics or a guide that show where texts are missing; released lengths.
"""
SURVIVORS = """\
- *Survivors by the truncated k-median of the noisy votes* (McMillan, Talwar, Zhou), instead of the most votes: level.
  60 of the 240 first texts of the reviews, three seeds, four samples of the noise each: Fréchet distance .632 by rank,
  .641, .634 and .632 with votes truncated at 0, 1 and 2 standard deviations; precision .805, and .765, .792 and .801;
  recall .586, and .599, .596 and .588. Herding towards the votes' mean: .624, but recall .481; in proportion to the
  votes: .728. We built none of them. (Choices among stored texts, by a script that is not in this repository.)
"""
VOTED = (
    "- *Several nearest votes* (`nearest` of aug-pe, which splits a record's vote among its k nearest), in the "
    "same choice (`python -m benchmarks.beside_texts yelp_augpe votes`): level by Fréchet distance, recall falls. "
    "With k of {ks}: {told}."
)
COSTS = """
## What it costs

Processor seconds for 1,000 rows, release and fit and sampling together, from the same runs as above. Tab-PE's seconds
grow with records times rounds, ours with the cells that are measured. The cores were shared, so seconds are upper
bounds.

| table | understudy | Tab-PE | AIM |
|---|---|---|---|
{rows}

A release of a million records on one core, from `results/scaling.json`, without the time of embeddings. Memory is that
of the process itself. [Performance](performance.md) has other sizes.

| release | processor seconds | MB |
|---|---|---|
{releases}

Embedding 1,000 texts takes {embedded:.0f} s (`results/ratios.json`).
In private prediction a thousand tokens take {token:.0f} s for each private text of a batch; a thousand clipped
gradients of dp-finetune take {gradient:.0f} s. Only [private evolution](#texts-private-evolution) was timed
together with another tool.
"""


def gpu(rows: list[Mapping[str, Any]]) -> str:
    """What ran on a GPU, what agrees with the CPU, and what a clipped gradient costs beside a plain step."""
    of = {name: [row for row in rows if row["what"] == name] for name in dict.fromkeys(row["what"] for row in rows)}
    models = {row["dtype"]: row for row in of["model"]}
    (votes,), (vectors,) = of["votes"], of["embedder"]
    separate = all(row.get("separate", row.get("rows_separate", True)) for row in rows)
    run = {"little beside": "little other load"}
    ratios = [
        f"| {row['rows']} | {run.get(row['run'], row['run'])} | {row['ratio']:.2f} | "
        f"{1000 * row['seconds'] / row['rows']:.1f} ms |"
        for row in of["clipped gradients"]
    ]
    steps, texts = of["dp-finetune"][0]["steps"], of["dp-finetune"][0]["batch"]
    took = sorted(row["run_s"] for row in of["dp-finetune"])
    return GPU.format(
        votes="the same integers" if all(votes["the same"].values()) else "NOT THE SAME",
        records=votes["records"],
        candidates=votes["candidates"],
        texts=vectors["texts"],
        vectors=vectors["largest_difference"],
        kl=models["float32"]["kl"],
        gradient=models["float32"]["clipped_sum"],
        rough=models["bfloat16"]["kl"],
        likeliest=100 * models["bfloat16"]["same_likeliest"],
        rounded=100 * models["bfloat16"]["clipped_sum"],
        separate="separate, each time" if separate else "NOT SEPARATE in one",
        ratios="\n".join(ratios),
        steps=steps,
        batch=texts,
        fastest=took[0],
        slowest=took[-1],
        tuned=len(took),
        predicted=", ".join(f"{TITLE[row['set']]} {row['run_s']:.0f} s" for row in of["private-prediction"]),
    )


GPU = """
## On a GPU

One H100 with 16 cores, from a checkout and not in the container. `results/beside/gpu.json` is from one session, in
which more than a dozen processes shared the GPU, except for the row "little other load". The embedder's weights were
rounded to 16 bits for the transfer to that machine, so its results there may differ in the third decimal.

- **The tests** of models, gradients and votes: 226 pass and one is skipped. One failed, because only this
  machine had PEFT; it has been fixed since.
- **Votes** of {records:,} records among {candidates:,} candidates, by three distances: {votes} on GPU and CPU.
- **The embedder**: no coordinate of {texts} vectors differs from the CPU's by more than {vectors:.0e}.
- **The language model** in float32: the divergence of next-token distributions from the CPU's is {kl:.0e}, and a
  clipped sum of gradients differs by {gradient:.0e} of its length. In bfloat16, the default there, the divergence is
  {rough:.4f}, the most likely token is the same at {likeliest:.0f} % of positions, the sum differs by {rounded:.1f} %.
- **Rows of a block** do not affect one another: gradients of 32 and 128 rows, logits of 128, the test of the embedder
  and those before each charge found them {separate}.
- **Whole runs**: {tuned} of dp-finetune ({steps} steps of {batch:,} texts, 200 texts and all: {fastest:.0f} to
  {slowest:.0f} s) and two of private prediction ({predicted}). Their figures are in [the
  benchmarks](README.md#dp-sgd-fine-tuning) and [above](#compared-with-published-figures), those of aug-pe
  [above](#texts-private-evolution).

Clipped gradients of texts of 64 tokens, LoRA of rank 8, compared with a plain step without clipping: the median of
ratios of pairs in one process (`python -m benchmarks gradients --device cuda`):

| rows of a block | | ratio | per text |
|---|---|---|---|
{ratios}

Not measured, for lack of time: decoding, teachers, votes and embeddings compared with their floors, few-shot
and seq-pate.
"""
PAPERS = """
## Compared with published figures

Models and classifiers differ: a row shows how far apart the settings are, not who is better. *Not at hand*: we could
not read the paper's table, and do not quote it from memory. Ours are by SmolLM2 with 135 million weights; accuracies
are those of classifiers of embeddings / TF-IDF on real texts.

| method, paper | the paper's figures | ours | what differs |
|---|---|---|---|
{rows}

[The benchmarks](README.md) have the settings of our figures: [private
prediction](README.md#private-prediction), [all methods](README.md#all-methods-side-by-side),
[fine-tuning](README.md#dp-sgd-fine-tuning), [SeqPATE](README.md#seqpate); those of private prediction on TREC and
DBpedia are in `results/beside/gpu.json` and, if a command makes them, in `results/beside/papers.json`. They teach a
classifier almost nothing: chance is .17 and .07.

**Few-shot as Tang et al. judge it**: four exemplars are in the prompt of the model that made them, and it labels real
test texts by the labels' calibrated probabilities. A row is one release, and the mean of three choices of four from its
one exemplar per label; real texts are chosen three times too. Chance is one in so many labels.

{shots}

Each row has its command in `results/beside/papers.json`. [Their
scripts](https://github.com/microsoft/dp-few-shot-generation/blob/main/run.sh) have 80 x 1 (TREC), 10 x 2 (AG News),
40 x 2 (DBpedia) and 20 x 4 (film genres, to be found in the text, where ours are to be chosen among six), the model
`babbage`, five seeds, and for most sets 1,000 test texts. Of their accuracies only those on TREC were at hand.
A share of 200 texts has a standard error of .03. On TREC the three budgets are level within two of these, and what they
gain over no text may be the form that exemplars show; on AG News one standard error is gained, and film genres lose:
there the genre is a word of the question, which real texts show and ours, cut at 12 tokens, do not. What limits our
rows: the model, which four real texts bring to .440 on TREC and theirs to .506; and time. A token reads every subset's
prompt anew (4 to 10 core seconds), so that DBpedia and the other budgets have no row. Of 28 exemplars three ended in
their 10 to 15 tokens.
"""
ROWS = (
    (
        "private prediction, Amin et al. 2024 (arXiv:2407.12108)",
        "not at hand",
        "{predicted}; AG News, epsilon 6, 24 texts: .555 / .352 (as many real ones: .740 / .472)",
        "they write thousands of texts, we one or two dozen",
    ),
    (
        "the same, records",
        "not at hand",
        "film records, epsilon 6: of those that end .95 parse and .81 are valid",
        "the schema; 24 records",
    ),
    (
        "few-shot, Tang et al. 2023 (arXiv:2309.11765)",
        "TREC, four exemplars, epsilon 1: .507, without privacy .506 "
        "([a summary](https://www.sciencestack.ai/paper/2309.11765)); else not at hand",
        "the table below; AG News, epsilon 6, 200 texts after one exemplar per label: .463 / .316",
        "the model (`babbage`), more subsets, more test texts",
    ),
    (
        "tuning a generator that knows the task, Tan et al. 2025 (CTCL, arXiv:2503.12347)",
        "not at hand",
        "AG News, 200 texts, epsilon 8 and 1: {tuned}",
        "theirs has 140 million weights; ours begins with [the writer](../docs/models.md#the-writer)",
    ),
    (
        "SeqPATE, Tian et al. 2022: Europarl, epsilon 3, perplexity, BLEU-3, BLEU-4",
        "33.9, 1.60, 0.61 (GPT-2 before: perplexity 57.4)",
        "34.3, 3.86, 2.04 (before: 35.9)",
        "they tune 2,000 copies of GPT-2, we adapters, in a simulation that averages 160 teachers; other tokens",
    ),
    (
        "DP-SGD, the same paper and set",
        "35.8, 1.56, 0.57",
        "28.3, 3.37, 1.08",
        "ours tunes adapters of 92,160 numbers; other tokens",
    ),
)
TITLE = {"trec": "TREC", "dbpedia14": "DBpedia", "ag_news": "AG News", "mit_genres": "film genres"}
LABELS = {"trec": 6, "dbpedia14": 14, "ag_news": 4, "mit_genres": 6}


def shots(rows: list[Mapping[str, Any]]) -> str:
    """Few-shot: what a prompt shows, and how often the model then names the right label."""
    heads = "set, labels", "the prompt shows", "subsets x records", "noise on a probability", "accuracy", "test texts"
    lines = [" | ".join((*heads, "core seconds per token")), " | ".join(["---"] * 7)]
    of = [row for row in rows if row["what"] == "few-shot"]
    for row in sorted(of, key=lambda row: (list(LABELS).index(row["set"]), str(row["epsilon"]))):
        made = "subsets" in row
        shown = f"four of {row['usable']} exemplars, epsilon {row['epsilon']:g}" if made else "four real texts"
        costs = [f"{row['subsets']} x {row['shown']}", f"{row['noise on a probability']:.3f}"] if made else ["-"] * 2
        seconds = f"{row['core_s'] / row['noisy tokens']:.1f}" if made else "-"
        for measure in ("four-shot", *(() if made else ("zero-shot",))):
            told = f"{row[measure]:.3f}".removeprefix("0"), str(row["tests"]), seconds
            what = shown if measure == "four-shot" else "no text"
            lines.append(" | ".join((f"{TITLE[row['set']]}, {LABELS[row['set']]}", what, *costs, *told)))
    return "\n".join(f"| {line} |" for line in lines)


def papers(rows: list[Mapping[str, Any]], own: list[Mapping[str, Any]]) -> str:
    """Ours beside the figures of papers that are at hand."""

    def judged(row: Mapping[str, Any]) -> str:
        return f"{row['embedding']:.3f} / {row['tf_idf']:.3f}".replace("0.", ".")

    predicted = [
        f"{TITLE[row['set']]}, epsilon {row['epsilon']}, {row['texts']} texts: {judged(row)}"
        for row in (*rows, *own)
        if row["what"] == "private-prediction"
    ]
    tuned = [judged(row) for row in rows if row["what"] == "dp-finetune" and row["start"] == "writer"]
    lines = [f"| {' | '.join(row)} |" for row in ROWS]
    table = "\n".join(lines).format(predicted="; ".join(predicted), tuned=" and ".join(tuned))
    return PAPERS.format(rows=table, shots=shots(own))


def page() -> str:
    rows, texts, votes, device, own = (
        json.loads((FOLDER / "results" / "beside" / f"{name}.json").read_text("utf-8"))
        for name in ("columns", "texts", "votes", "gpu", "papers")
    )
    parts = columns(rows), "\n", TAIL, evolution(texts, votes), papers(device, own), costs(rows), gpu(device)
    return "".join((HEAD, *parts))


def main() -> None:
    (FOLDER / "beside.md").write_text(page(), "utf-8")


if __name__ == "__main__":
    main()

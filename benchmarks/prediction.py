"""Private prediction of short texts and records by the built-in model, a few batches a configuration.

Each run is a whole release with the real mechanism, accounting and a ledger of its own, on as many real records as
fill its batches. Said of it: the budget, private tokens a batch (r), clip range, texts that ended, were cut at
``max_tokens`` or for want of private tokens; records that parse and keep to the schema; drawn tokens, public ones and
those that the form of a record forces; seconds of a core; gauges of the texts (textquality.py); and what the whole
corpus would give.

    python -m benchmarks.prediction --sweep base --results FILE        # sweeps: see SWEEPS
    python -m benchmarks.prediction --base news top_k=20 temperature=0.8 --results FILE
    python -m benchmarks.prediction --base trec --beside epsilon=4     # and classifiers of the texts
    python -m benchmarks.prediction --table --results FILE             # as Markdown
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import understudy as us
import understudy.models.catalog as catalog
from benchmarks.corpora import prompt_file
from benchmarks.exemplars import NAMES
from benchmarks.results import add_row
from benchmarks.sets import CACHE, DATA, embed
from benchmarks.textquality import known_pairs, known_words, nearness, right_label
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers
from understudy.ledger import Ledger
from understudy.methods.private_prediction import plan
from understudy.methods.private_prediction import release as releasing
from understudy.methods.shared.decoding.prompting import LabelPrompts
from understudy.methods.shared.decoding.structured import Fault
from understudy.privacy.tokens import BatchTokens
from understudy.text.prompts.template import PromptTemplate, load_template

DELTA = "1e-6"


@dataclass(frozen=True)
class Configuration:
    """One run. What is None has the method's default."""

    name: str
    data: str = "ag_news"
    epsilon: float = 6.0
    batches: int = 1
    """Of each label."""
    public: bool = False
    """No private record: the texts of the prompt alone, at the same temperature and candidates."""
    labels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    schema: bool = False
    document_type: str = "news"
    max_tokens: int = 60
    shots: int | None = None
    """Public examples in the prompt; None: the template's own, all of them."""
    own_shots: int | None = None
    """Instead: so many of the template's, those of the label first (no option of the library says this)."""
    method: dict[str, Any] = field(default_factory=dict)

    def but(self, name: str, **changes: Any) -> Configuration:
        """The same with other parameters; those of the method among them."""
        own = {key: value for key, value in changes.items() if key in self.__dataclass_fields__}
        method = {key: value for key, value in changes.items() if key not in own}
        return replace(self, name=name, method={**self.method, **method}, **own)


NEWS = Configuration(
    "base",
    labels=("Business", "Sci/Tech", "Sports", "World"),
    method={"private_text_tokens": 80, "texts_per_batch": 4},
)
QUESTIONS = Configuration(
    "questions",
    data="mit_movies",
    document_type="film question",
    max_tokens=30,
    batches=2,
    method={"private_text_tokens": 40},
)
TREC = Configuration(
    "trec",
    data="trec",
    labels=tuple(NAMES["trec"].values()),
    document_type="question",
    max_tokens=30,
    method={"private_text_tokens": 40, "batch_size": 63, "tokens_per_batch": 96},
)
GENRES = QUESTIONS.but("text+genre", columns=("text", "genre"), max_tokens=50, private_text_tokens=60)
FILMS = Configuration(
    "title+year+genres",
    data="wikimovies",
    columns=("title", "year", "genres"),
    schema=True,
    document_type="film record",
    max_tokens=60,
    batches=2,
    method={"private_text_tokens": 60},
)
RECENTRED = NEWS.but("recenter", clip="recenter", batch_size=63, temperature=2.0, texts_per_batch=4)
BASES = {"news": NEWS, "questions": QUESTIONS, "trec": TREC, "genres": GENRES, "films": FILMS, "recenter": RECENTRED}

SCHEMA = {
    "title": {"type": "string", "minLength": 1, "maxLength": 100},
    "year": {"type": "integer", "minimum": 1880, "maximum": 2030},
    "genres": {"type": "array", "items": {"type": "string", "maxLength": 30}, "minItems": 1, "maxItems": 6},
    "cast": {"type": "array", "items": {"type": "string", "maxLength": 60}, "maxItems": 12},
    "label": {"type": "string", "maxLength": 30},
    "text": {"type": "string", "minLength": 40},
    "director": {"type": "string", "maxLength": 60},
    "genre": {"type": "string", "maxLength": 40},
}


SPARSE: dict[str, Any] = {"threshold": 0.15, "public_temperature": 1.0, "tokens_per_batch": 32, "batches": 1}


def _sweep(base: Configuration, **values: Sequence[Any]) -> list[Configuration]:
    return [base.but(f"{name}={value}", **{name: value}) for name, options in values.items() for value in options]


SWEEPS: dict[str, list[Configuration]] = {
    "base": [
        NEWS,
        NEWS.but("public only", public=True),
        NEWS.but("no clip, no cost", epsilon=1000.0),
        NEWS.but("shots=0", shots=0),
        NEWS.but("shots=0, public only", shots=0, public=True),
        NEWS.but("shots=0, no clip", shots=0, epsilon=1000.0),
        NEWS.but("one shot of the label", own_shots=1),
        NEWS.but("one shot of the label, public only", own_shots=1, public=True),
        NEWS.but("top_k=20, public only", top_k=20, public=True),
        NEWS.but("top_k=20, epsilon=1", top_k=20, epsilon=1.0),
    ],
    "difference": _sweep(
        NEWS,
        batch_size=(7, 15),
        temperature=(0.7, 0.8, 1.2),
        top_k=(20, 50, 1024, 0),
        tokens_per_batch=(128, 512),
        epsilon=(1.0, 3.0),
        prompt_form=("chat",),
    ),
    "recenter": [
        RECENTRED.but("tau 2, all", top_k=0),
        RECENTRED.but("tau 2, 1024", top_k=1024),
        RECENTRED.but("tau 2, 100", top_k=100),
        RECENTRED.but("tau 1.5, 100", top_k=100, temperature=1.5, tokens_per_batch=None),
    ],
    "fixed": [RECENTRED.but(f"fixed, c {c:g}", clip="fixed", clip_range=c) for c in (10.0, 20.0)],
    "sparse vector": [
        FILMS.but(f"sparse vector {on}", sparse_vector=on, batch_size=63, **SPARSE) for on in (True, False)
    ],
    "films": [
        FILMS,
        FILMS.but("public only", public=True),
        FILMS.but("no schema shown", schema=False),
        FILMS.but("title+year", columns=("title", "year")),
        FILMS.but("title+year+genres+cast", columns=("title", "year", "genres", "cast"), max_tokens=90),
        FILMS.but("title+year+label+text", columns=("title", "year", "label", "text"), max_tokens=110),
        FILMS.but("temperature=0.8", temperature=0.8),
        FILMS.but("top_k=20", top_k=20),
    ],
    "questions": [
        QUESTIONS,
        QUESTIONS.but("public only", public=True),
        GENRES,
        GENRES.but("public only", public=True),
        GENRES.but("text+director", columns=("text", "director")),
    ],
}


@cache
def _model(spec: str) -> Any:
    return _load_causal(spec)


_load_causal = catalog.load_causal
catalog.load_causal = lambda spec, **_: _model(spec)  # type: ignore[assignment]


@dataclass
class Watched:
    """What a run shows on its way; more than a Release holds."""

    asked: LabelPrompts | None = None
    drawn: Sequence[Any] = ()
    public: int = 0


@contextmanager
def watching() -> Iterator[Watched]:
    """Look at every text that was drawn, those that are left out too, and count the public tokens."""
    seen, collected, choose_public = Watched(), releasing.collected, BatchTokens.choose_public

    def look(parameters: Any, asked: LabelPrompts, drawn: Sequence[Any], *rest: Any) -> Any:
        seen.asked, seen.drawn = asked, drawn
        return collected(parameters, asked, drawn, *rest)

    def count(*given: Any, **named: Any) -> int:
        seen.public += 1
        return choose_public(*given, **named)

    releasing.collected, BatchTokens.choose_public = look, count
    try:
        yield seen
    finally:
        releasing.collected, BatchTokens.choose_public = collected, choose_public


@contextmanager
def fewer_shots(most: int | None) -> Iterator[None]:
    """Prompts that show ``most`` of the template's examples, those of the label first; None: all."""
    whole = PromptTemplate.prediction_prompt

    def fewer(self: PromptTemplate, **values: Any) -> Any:
        return whole(self, **{**values, "most_examples": most})

    if most is not None:
        PromptTemplate.prediction_prompt = fewer
    try:
        yield
    finally:
        PromptTemplate.prediction_prompt = whole


@cache
def _table(data: str, split: str) -> pa.Table:
    """The rows, labels in words."""
    table = pq.read_table(DATA / data / f"{split}.parquet")
    if data not in NAMES:
        return table
    words = [NAMES[data].get(label, label) for label in table["label_name"].to_pylist()]
    return table.drop_columns("label_name").append_column("label_name", pa.array(words, pa.large_string()))


def _usable(configuration: Configuration, split: str) -> pa.Table:
    """The rows that have a value in every column."""
    table = _table(configuration.data, split)
    for column in configuration.columns:
        table = table.filter(pc.is_valid(table[column]))
    if configuration.labels:
        table = table.filter(pc.is_in(table["label_name"], pa.array(configuration.labels, pa.large_string())))
    return table


def private_rows(configuration: Configuration, size: int) -> pa.Table:
    """As many rows of each label as its batches hold."""
    table, wanted = _usable(configuration, "train"), size * configuration.batches
    if configuration.public:
        return table.slice(0, 0)
    if not configuration.labels:
        return table.slice(0, wanted)
    rows = [table.filter(pc.equal(table["label_name"], label)).slice(0, wanted) for label in configuration.labels]
    return pa.concat_tables(rows)


def _schema_file(configuration: Configuration, folder: Path) -> dict[str, Any]:
    if not configuration.schema:
        return {}
    file = folder / "schema.json"
    schema = {
        "type": "object",
        "properties": {name: SCHEMA[name] for name in configuration.columns},
        "required": list(configuration.columns),
    }
    file.write_text(json.dumps(schema))
    return {"json_schema": str(file)}


def _shots(configuration: Configuration, folder: Path) -> dict[str, Any]:
    if configuration.shots is None:
        return {}
    template = load_template(configuration.document_type)
    shape = "json" if configuration.columns else "text"
    texts = [each.text for each in template.prediction_examples(shape, configuration.columns)]
    shown = None if configuration.columns else texts
    return {"prompt": prompt_file(folder / "prompt.yaml", shown, examples_per_prompt=configuration.shots)}


def run(configuration: Configuration) -> dict[str, Any]:
    """One release, and what is to be said of it."""
    with tempfile.TemporaryDirectory() as name, watching() as seen, fewer_shots(configuration.own_shots):
        folder = Path(name)
        options = {**configuration.method, **_schema_file(configuration, folder)}
        if configuration.public:
            options["batch_size"] = 1
        method = us.PrivatePrediction(**{"batches": configuration.batches, **options})
        size = method.resolved.batch_size
        rows = private_rows(configuration, size)
        labels = {"label": "label_name", "labels": list(configuration.labels)} if configuration.labels else {}
        text = {"record_columns": configuration.columns} if configuration.columns else {"text": "text"}
        corpus = us.read_corpus(rows, **text, **labels)
        budget = us.Budget(configuration.epsilon, DELTA)
        _model("builtin")
        wall, core = time.perf_counter(), time.process_time()
        us.release(
            corpus,
            method,
            budget,
            ledger=Ledger.create(folder / "ledger.sqlite").location,
            output=str(folder / "out"),
            dataset="benchmark",
            document_type=configuration.document_type,
            max_tokens=configuration.max_tokens,
            **_shots(configuration, folder),
        )
        wall, core = time.perf_counter() - wall, time.process_time() - core
        mechanism = plan.mechanism_of(method, budget)
        return {
            **asdict(configuration),
            "batch_size": size,
            "clip_range": round(mechanism.clip, 3),
            "log-odds": round(2 * mechanism.clip / (size * mechanism.temperature), 3),
            "tokens a batch": mechanism.tokens,
            "temperature": mechanism.temperature,
            "when": time.strftime("%H:%M"),
            **_figures(configuration, seen, wall, core, size, mechanism.tokens),
        }


def _figures(
    configuration: Configuration, seen: Watched, wall: float, core: float, size: int, paid: int
) -> dict[str, Any]:
    assert seen.asked is not None, "the run came so far"
    ended: list[Any] = [each for each in seen.drawn if each.ended]
    texts = [seen.asked.read(each.label, each.tokens.tolist()).text for each in ended]
    checked = [text if seen.asked.check is None else seen.asked.check(text) for text in texts]
    good = [(text, each) for text, each in zip(checked, ended, strict=True) if text and not isinstance(text, Fault)]
    faults = Counter(str(fault) for fault in checked if isinstance(fault, Fault))
    tokens = sum(len(each.tokens) for each in seen.drawn)
    private = sum(int(each.private.sum()) for each in seen.drawn)
    at_length = sum(not each.ended and len(each.tokens) >= configuration.max_tokens for each in seen.drawn)
    batches = configuration.batches * max(1, len(configuration.labels))
    filled = _usable(configuration, "train").num_rows / size
    used = private / batches / paid
    result: dict[str, Any] = {
        "drawn texts": len(seen.drawn),
        "ended": len(ended),
        "empty": sum(not text for text in texts),
        "cut at max_tokens": at_length,
        "parse": round(1 - (sum(faults.values()) - faults.get("schema", 0)) / max(1, len(ended)), 3),
        "valid": round(1 - sum(faults.values()) / max(1, len(ended)), 3),
        "faults": dict(faults),
        "good": len(good),
        "tokens": tokens,
        "private": private,
        "public": seen.public,
        "forced": tokens - private - seen.public,
        "tokens a text": round(tokens / max(1, len(seen.drawn)), 1),
        "wall_s": round(wall, 1),
        "core_s": round(core, 1),
        "core_s a drawn token": round(core / max(1, private), 4),
        "load": round(os.getloadavg()[0], 1),
        "corpus: batches": int(filled),
        "corpus: texts": int(len(good) / batches / used * filled) if used else 0,
        "corpus: hours on two cores": round(core / batches / used * filled / 7200, 1) if used else 0,
        **_quality(configuration, good),
        "texts": [[each.label, text] for text, each in good],
        "bad": [text for text, read in zip(texts, checked, strict=True) if isinstance(read, Fault)],
        "unfinished": [seen.asked.read(each.label, each.tokens.tolist()).text for each in seen.drawn if not each.ended][
            :3
        ],
    }
    return result


def _real(configuration: Configuration, split: str) -> list[str]:
    table = _usable(configuration, split)
    if not configuration.columns:
        return [str(text) for text in table["text"].to_pylist()]
    return [json.dumps(row, ensure_ascii=False) for row in table.select(list(configuration.columns)).to_pylist()]


def _quality(configuration: Configuration, good: Sequence[tuple[str, Any]]) -> dict[str, float]:
    texts = [text for text, _ in good]
    real = _real(configuration, "train")
    found = {
        "words": known_words(texts),
        "pairs": known_pairs(texts),
        "near": nearness(texts, real[::-1]),
        "words a text": float(np.mean([len(text.split()) for text in texts])) if texts else float("nan"),
    }
    if configuration.labels:
        labels = [configuration.labels[each.label] for _, each in good]
        real_labels = _usable(configuration, "train")["label_name"].to_pylist()
        found["right label"] = right_label(texts, labels, real, real_labels)
    return {name: round(value, 3) for name, value in found.items()}


def real_figures(configuration: Configuration) -> dict[str, float]:
    """The gauges of held-out real texts, cut like the model's: what is best possible."""
    texts = _real(configuration, "test")[:400]
    found = {"words": known_words(texts), "pairs": known_pairs(texts)}
    found["near"] = nearness(texts, _real(configuration, "train")[::-1])
    if configuration.labels:
        test, train = _usable(configuration, "test"), _usable(configuration, "train")
        real, labels = _real(configuration, "train"), train["label_name"].to_pylist()
        found["right label"] = right_label(texts, test["label_name"].to_pylist()[:400], real, labels)
    return {name: round(value, 3) for name, value in found.items()}


def taught(configuration: Configuration, made: Sequence[tuple[int, str]], *, most: int = 1000) -> dict[str, float]:
    """Accuracy on real test texts of classifiers that learnt from ``made``: a label and a text each."""
    test = _usable(configuration, "test")
    test = test.take(np.random.default_rng(0).permutation(test.num_rows)[:most])
    samples = [
        Sample(tuple(texts), tuple(labels), embed(list(texts)))
        for texts, labels in (
            ([text for _, text in made], [configuration.labels[label] for label, _ in made]),
            (test["text"].to_pylist(), test["label_name"].to_pylist()),
        )
    ]
    found = measure_classifiers(None, samples[1], {"": samples[0]}, kinds=("embedding", "tf-idf"), seeds=1)
    return {
        str(value.settings["classifier"]).replace("-", "_"): round(value.value or 0.0, 4)
        for value in found
        if value.metric.name == "accuracy"
    }


SHOWN = (
    "name", "epsilon", "batch_size", "tokens a batch", "log-odds", "drawn texts", "ended", "parse", "valid",
    "tokens a text", "public", "forced", "words", "pairs", "near", "right label", "core_s a drawn token",
    "corpus: texts", "corpus: hours on two cores",
)  # fmt: skip


def show(results: Sequence[dict[str, Any]]) -> None:
    """A table in Markdown."""
    print("|", " | ".join(("data", *SHOWN)), "|")
    print("|", " | ".join(["---"] * (len(SHOWN) + 1)), "|")
    for each in results:
        print("|", each["data"], "|", " | ".join(str(each.get(name, "")) for name in SHOWN), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("changes", nargs="*", help="parameter=value, of the method or the run")
    parser.add_argument("--sweep", nargs="*", default=(), choices=sorted(SWEEPS))
    parser.add_argument("--only", default="", help="configurations whose name holds this")
    parser.add_argument("--base", default="news", choices=sorted(BASES))
    parser.add_argument("--results", type=Path, default=CACHE / "prediction.jsonl", help="one line is added a run")
    parser.add_argument("--real", action="store_true", help="the gauges of held-out real texts")
    parser.add_argument("--beside", action="store_true", help="add a row to results/beside/papers.json")
    parser.add_argument("--table", action="store_true", help="show what --results holds, run nothing")
    arguments = parser.parse_args()
    if arguments.table:
        show([json.loads(line) for line in arguments.results.read_text("utf-8").splitlines()])
        return
    base = BASES[arguments.base]
    if arguments.real:
        print(json.dumps({"real": base.data, **real_figures(base)}))
        return
    wanted = [each for name in arguments.sweep for each in SWEEPS[name] if arguments.only in each.name]
    if arguments.changes:
        changes = dict(each.split("=", 1) for each in arguments.changes)
        wanted.append(base.but(" ".join(arguments.changes), **{name: _value(value) for name, value in changes.items()}))
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    for each in wanted or [base]:
        found = run(each)
        with arguments.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found, ensure_ascii=False) + "\n")
        show([found])
        if arguments.beside:
            row = {
                "what": "private-prediction",
                "set": each.data,
                "epsilon": each.epsilon,
                "texts": len(found["texts"]),
            }
            row |= {name: found[name] for name in ("batch_size", "batches", "tokens a batch", "core_s")}
            row |= taught(each, found["texts"])
            row |= {"command": f"python -m benchmarks.prediction {' '.join(sys.argv[1:])}"}
            add_row("beside/papers", row, ("command",))
        for _, text in found["texts"][:4]:
            print("   ", text.replace("\n", " / ")[:240])
        print(flush=True)


def _value(spelled: str) -> Any:
    try:
        return json.loads(spelled)
    except ValueError:
        return spelled


if __name__ == "__main__":
    main()

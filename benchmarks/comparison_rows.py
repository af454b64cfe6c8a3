"""The rows of the comparison: how the synthetic texts of each are made, and folders to hold them.

Each is a folder ``OUT/SET/ROW/REPETITION`` as ``understudy run`` makes it. The rows of dp-kps at one epsilon and
repetition come of one Release (what they differ in is free); other methods have a charge, and a ledger, of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import understudy as us
import understudy.models.catalog as catalog
from benchmarks.corpora import prompt_file
from benchmarks.sets import DATA, VOCABULARIES, embed, embedder
from understudy.ledger import Ledger
from understudy.methods.few_shot.method import FewShot
from understudy.methods.shared.evolution.parameters import EvolutionParameters
from understudy.methods.shared.evolution.variation import TextAPI, keywords_of_labels
from understudy.privacy.guarantee import SecretBudget
from understudy.text.prompts.template import WritingParameters, load_template
from understudy.text.writing import Writer

DELTA = "1e-6"
PRIOR, POSTERIOR = "1e-4", "1e-3"
WORDS: dict[str, Any] = {"min_words": 20, "max_words": 45}
WRITING: dict[str, Any] = {"llm_temperature": 0.8, "max_tokens": 80}
PHRASES: dict[str, Any] = {"llm_temperature": 0.6, "max_tokens": 80, "length": 4}
EVOLUTION: dict[str, Any] = {"rounds": 2, "variations": 3, "blank_probability": 0, **WORDS}


REAL = (6, 15, 20, 50, 100)
"""Real texts of each label, for rows of about so many."""


@dataclass(frozen=True)
class Size:
    """What is asked for of a set.

    Args:
        document_type: what the language model is told to write.
        written: texts of each label that it writes.
        evolved: texts of each label that private evolution chooses.
        batches: of each label, in private prediction.
        keywords: public topics of each label for new texts; None: the prompt template's own.
    """

    document_type: str
    written: int
    evolved: int
    batches: int
    keywords: dict[str, list[str]] | None = None


SIZES = {
    "ag_news": Size("news article", written=50, evolved=15, batches=2),
    "dbpedia14": Size(
        "encyclopedia article",
        written=20,
        evolved=6,
        batches=1,
        keywords={
            "Company": ["a bank", "an airline", "a software maker", "a publisher"],
            "Educational Institution": ["a university", "a high school", "a college", "a girls' school"],
            "Artist": ["a painter", "a singer", "a composer", "a novelist"],
            "Athlete": ["a footballer", "a swimmer", "a cricketer", "a baseball player"],
            "Office Holder": ["a senator", "a governor", "a judge", "a mayor"],
            "Mean Of Transportation": ["a ship", "an aircraft", "a car", "a locomotive"],
            "Building": ["a church", "a castle", "a museum", "a tower"],
            "Natural Place": ["a river", "a mountain", "a lake", "an island"],
            "Village": ["a village", "a hamlet", "a small town", "a settlement"],
            "Animal": ["a beetle", "a bird", "a fish", "a moth"],
            "Plant": ["a flower", "a tree", "an orchid", "a fern"],
            "Album": ["a rock album", "a live album", "a debut album", "a jazz album"],
            "Film": ["a comedy film", "a drama film", "a silent film", "a documentary"],
            "Written Work": ["a novel", "a newspaper", "a journal", "a comic"],
        },
    ),
}


@dataclass(frozen=True)
class Place:
    """Where the folders of a set lie, and its real splits (columns ``text`` and ``label``)."""

    out: Path
    name: str

    @property
    def size(self) -> Size:
        return SIZES[self.name]

    @property
    def labels(self) -> list[str]:
        return sorted(pc.unique(pq.read_table(self.split("test"), columns=["label"])["label"]).to_pylist())

    def split(self, which: str) -> Path:
        """The split as a file, its labels in words."""
        path = self.out / self.name / f"{which}.parquet"
        if not path.exists():
            table = pq.read_table(DATA / self.name / f"{which}.parquet")
            labels = [_in_words(label) for label in table["label_name"].to_pylist()]
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"text": table["text"], "label": labels}), path)
        return path

    def folder(self, row: str, repetition: int) -> Path:
        return self.out / self.name / row / str(repetition)

    def table(self, row: str, repetition: int) -> Path:
        return self.folder(row, repetition) / "release" / "synthetic.parquet"

    def figures(self, row: str) -> Path:
        return self.out / self.name / row / "evaluation.json"

    def ledger(self, row: str, repetition: int) -> str:
        path = self.out / "ledgers" / f"{self.name}-{row}-{repetition}.sqlite"
        return Ledger.create(path).location

    def keywords(self) -> dict[str, Any]:
        """The parameters that name the public topics, if the set has its own."""
        if self.size.keywords is None:
            return {}
        path = self.out / self.name / "keywords.yaml"
        path.write_text(json.dumps(self.size.keywords), "utf-8")
        return {"keywords": str(path), "keywords_are_public": True}


class Remembering:
    """The built-in embedder, with the embeddings of the real splits at hand and of all it has seen."""

    def __init__(self, place: Place) -> None:
        self._known: dict[str, NDArray[np.float32]] = {}
        for split in ("train", "test"):
            texts = pq.read_table(place.split(split), columns=["text"])["text"].to_pylist()
            self._known |= zip(map(str.strip, texts), embed(texts), strict=True)
        self.model_id, self.fingerprint, self.local = embedder().model_id, embedder().fingerprint, True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        texts = [text.strip() for text in texts]
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        self._known |= zip(new, embed(new), strict=True) if new else ()
        return np.stack([self._known[text] for text in texts])


@contextmanager
def remembering(place: Place) -> Iterator[None]:
    """Within it the library uses such an embedder."""
    known, load = Remembering(place), catalog.load_embedder
    catalog.load_embedder = lambda *_, **__: known  # type: ignore[assignment]
    try:
        yield
    finally:
        catalog.load_embedder = load


def _in_words(label: str) -> str:
    """``EducationalInstitution`` as ``Educational Institution``."""
    return "".join(f" {letter}" if letter.isupper() else letter for letter in label).strip().replace("/ ", "/")


def zero_shot(place: Place, repetition: int) -> None:
    """New texts of each label, by the prompts that private evolution starts with. Sees no private text."""
    labels, size = place.labels, place.size
    parameters = EvolutionParameters(**WORDS, **place.keywords())
    template = load_template(size.document_type)
    chat = catalog.load_chat("builtin", seed=repetition)
    writer = Writer(chat, template, WritingParameters(**WRITING), labels=labels, seed=repetition)
    api = TextAPI(writer, parameters, keywords_of_labels(parameters, template.evolution, labels))
    answers = api.random([size.written] * len(labels), stage=0)
    _write(place.table("zero-shot", repetition), list(answers.texts), [labels[index] for index in answers.labels])


def real(count: int | None) -> Callable[[Place, int], None]:
    """``count`` real texts of each label, drawn at random; None: all."""

    def make(place: Place, repetition: int) -> None:
        table = pq.read_table(place.split("train"))
        labels = np.array(table["label"].to_pylist())
        rows = np.random.default_rng(repetition).permutation(len(labels))
        kept = [row[:count] for label in place.labels for row in [rows[labels[rows] == label]]]
        chosen = table.take(np.concatenate(kept))
        row = "real-all" if count is None else f"real-{count}"
        _write(place.table(row, repetition), chosen["text"].to_pylist(), chosen["label"].to_pylist())

    return make


def _write(path: Path, texts: list[str], labels: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts, "label": labels}), path)


def phrases(epsilon: int, *, guide: bool = False) -> Callable[[Place, int], None]:
    """A Release of dp-kps, and 100 sequences per label, as they are."""

    def make(place: Place, repetition: int) -> None:
        row = f"dp-kps-none-e{epsilon}{'-guided' if guide else ''}"
        vocabulary = str(VOCABULARIES / "glove6b_400k.parquet")
        with remembering(place):
            us.run(
                _corpus(place),
                us.DPKPS(vocabulary=vocabulary, vocabulary_is_public=True),
                us.Budget(epsilon, DELTA),
                llm="none",
                guide=guide,
                records_per_label=100,
                **_common(place, row, repetition),
            )

    return make


def again(epsilon: int, row: str, *, guide: bool = False, **options: Any) -> Callable[[Place, int], None]:
    """Other texts of the same Release."""

    def make(place: Place, repetition: int) -> None:
        source = f"dp-kps-none-e{epsilon}{'-guided' if guide else ''}"
        if not place.table(source, repetition).exists():
            phrases(epsilon, guide=guide)(place, repetition)
        with remembering(place):
            us.generate(
                place.folder(source, repetition) / "release" / "dp-kps.release",
                output=str(place.folder(row, repetition)),
                seed=repetition,
                **({"records_per_label": 100} | options),
            )

    return make


def with_llm(epsilon: int, *, guide: bool = False) -> Callable[[Place, int], None]:
    """Texts of the built-in language model from four phrases each, the best of two answers; or with a guide, which
    chooses among two texts of one answer each."""

    def make(place: Place, repetition: int) -> None:
        row = f"dp-kps-llm-e{epsilon}{'-guided' if guide else ''}"
        options = {"document_type": place.size.document_type, "records_per_label": place.size.written}
        options |= {"samples": 1, "guide_candidates": 2} if guide else {"samples": 2}
        options["prompt"] = prompt_file(place.out / f"{place.name}-label.yaml", label_in_prompt=True)
        again(epsilon, row, guide=guide, llm="builtin", **options, **PHRASES)(place, repetition)

    return make


def aug_pe(place: Place, repetition: int) -> None:
    method = us.AugPE(population=place.size.evolved, **EVOLUTION, **place.keywords())
    common = _common(place, "aug-pe-e6", repetition)
    with remembering(place):
        us.run(_corpus(place), method, us.Budget(6, DELTA), **_written(place), **common)


def guided_evolution(place: Place, repetition: int) -> None:
    method = us.GuidedEvolution(population=place.size.evolved, **EVOLUTION, **place.keywords())
    common = _common(place, "guided-evolution-e6", repetition)
    with remembering(place):
        us.run(_corpus(place), method, us.Budget(6, DELTA), **_written(place), **common)


def sec_pe(place: Place, repetition: int) -> None:
    """What detectors find is protected. Its clusters are of the zero-shot texts: it needs no real public text."""
    if not place.table("zero-shot", repetition).exists():
        zero_shot(place, repetition)
    method = us.SecPE(
        public_corpus=str(place.table("zero-shot", repetition)),
        public_corpus_is_public=True,
        public_label="label",
        clusters=min(20, place.size.written),
        population=place.size.evolved,
        **EVOLUTION,
        **place.keywords(),
    )
    with remembering(place):
        us.run(
            _corpus(place),
            method,
            SecretBudget(PRIOR, POSTERIOR),
            secret_detectors="email,phone,us_ssn,iban,credit_card",
            max_records_per_secret=5,
            **_written(place),
            **_common(place, "sec-pe", repetition),
        )


def private_prediction(place: Place, repetition: int) -> None:
    """Four texts of each of a few batches, on as many records as fill these."""
    method = us.PrivatePrediction(batches=place.size.batches, private_text_tokens=80, texts_per_batch=4)
    wanted = place.size.batches * method.resolved.batch_size
    us.run(
        _corpus(place, wanted, repetition),
        method,
        us.Budget(6, DELTA),
        document_type=place.size.document_type,
        max_tokens=60,
        **_common(place, "private-prediction-e6", repetition),
    )


def few_shot(place: Place, repetition: int) -> None:
    """One exemplar a label, which then shows the built-in model what to write."""
    subsets, shown = 6, 2
    records = pq.read_metadata(place.split("train")).num_rows
    method = FewShot(
        sampling_rate=subsets * shown * len(place.labels) / records,
        subsets=subsets,
        examples_per_subset=shown,
        tokens=30,
        exemplar_tokens=30,
        exemplars=1,
        candidates=50,
        private_text_tokens=50,
    )
    options = {**_written(place), "records_per_label": place.size.written}
    us.run(_corpus(place), method, us.Budget(6, DELTA), **options, **_common(place, "few-shot-e6", repetition))


def dp_finetune(epsilon: int) -> Callable[[Place, int], None]:
    """Texts sampled from the built-in model, tuned for ten steps on 256 texts each."""

    def make(place: Place, repetition: int) -> None:
        records = pq.read_metadata(place.split("train")).num_rows
        method = us.DPFinetune(declared_records=records, steps=10, private_text_tokens=96, learning_rate=0.05)
        us.run(
            _corpus(place),
            method,
            us.Budget(epsilon, DELTA),
            document_type=place.size.document_type,
            records_per_label=place.size.written,
            llm_temperature=0.8,
            max_tokens=96,
            **_common(place, f"dp-finetune-e{epsilon}", repetition),
        )

    return make


def seq_pate(epsilon: int) -> Callable[[Place, int], None]:
    """Texts sampled from a student of the built-in model that 240 teachers on it have answered 120 questions."""

    def make(place: Place, repetition: int) -> None:
        records = pq.read_metadata(place.split("train")).num_rows
        us.run(
            _corpus(place),
            us.SeqPATE(declared_records=records, teachers=240, queries=120),
            us.Budget(epsilon, DELTA),
            document_type=place.size.document_type,
            records_per_label=place.size.written,
            llm_temperature=0.8,
            max_tokens=96,
            **_common(place, f"seq-pate-e{epsilon}", repetition),
        )

    return make


def _corpus(place: Place, of_each_label: int | None = None, seed: int = 0) -> us.Corpus:
    table: Any = place.split("train")
    if of_each_label is not None:
        table = pq.read_table(table)
        labels = np.array(table["label"].to_pylist())
        rows = np.random.default_rng(seed).permutation(len(labels))
        table = table.take(np.concatenate([rows[labels[rows] == label][:of_each_label] for label in place.labels]))
    return us.read_corpus(table, text="text", label="label", labels=place.labels)


def _common(place: Place, row: str, repetition: int) -> dict[str, Any]:
    return {
        "output": str(place.folder(row, repetition)),
        "ledger": place.ledger(row, repetition),
        "dataset": place.name,
        "seed": repetition,
    }


def _written(place: Place) -> dict[str, Any]:
    size = place.size
    return {
        "llm": "builtin",
        "document_type": size.document_type,
        "records_per_label": size.evolved,
        **WRITING,
    }


ROWS: dict[str, Callable[[Place, int], None]] = {
    **{f"real-{count}": real(count) for count in REAL},
    "real-all": real(None),
    **{f"dp-kps-none-e{epsilon}": phrases(epsilon) for epsilon in (1, 2, 6, 15)},
    **{
        name: again(epsilon, name, llm="none", length=8, contrast=0)
        for epsilon in (1, 2, 6, 15)
        for name in [f"dp-kps-none-e{epsilon}-contrast-0"]
    },
    **{f"dp-kps-none-e{epsilon}-guided": phrases(epsilon, guide=True) for epsilon in (1, 6)},
    "zero-shot": zero_shot,
    "dp-kps-llm-e6-guided": with_llm(6, guide=True),
    "dp-kps-llm-e6": with_llm(6),
    "dp-kps-llm-e1": with_llm(1),
    "private-prediction-e6": private_prediction,
    "aug-pe-e6": aug_pe,
    "guided-evolution-e6": guided_evolution,
    "sec-pe": sec_pe,
    "few-shot-e6": few_shot,
    "dp-finetune-e6": dp_finetune(6),
    "dp-finetune-e3": dp_finetune(3),
    "seq-pate-e6": seq_pate(6),
}
"""By name, cheap ones first. ``eN`` is epsilon; sec-pe promises (p, r) to secrets instead."""

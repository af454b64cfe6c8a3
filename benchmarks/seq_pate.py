"""SeqPATE: perplexity and BLEU of students under every ablation.

    python -m benchmarks.seq_pate teachers --set sgd --teachers 2000 --out DIR         # train them once
    python -m benchmarks.seq_pate students --set sgd --out DIR --ask 480 NAME ...      # ablations of those teachers
    python -m benchmarks.seq_pate models --set sgd FILE.release ...                    # any tuned Release, or none

Students get the real noise of the plan (continuous, from NumPy: a simulation that promises nothing) for ``--teachers``
teachers. To save time the mean may be taken over the first ``--ask`` of them; the noise stays that of all.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.sets import DATA
from benchmarks.teachers import TOKENS, faculty_of, student
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.language import UNTUNED, measure_released_model
from understudy.methods.registry import load_release, make_method, method_class
from understudy.methods.seq_pate.plan import (
    PSEUDO_TEXTS,
    AnswersSpec,
    SeqPATEParameters,
    noise_of,
    query_count,
    round_sizes,
)
from understudy.methods.seq_pate.student import STUDENT_STEPS, Lessons, PseudoTexts, Student, project, shares_of
from understudy.methods.seq_pate.teachers import Faculty, Group, Questions, TeacherAnswers
from understudy.methods.shared.decoding.tuned import Sampling, TunedModel
from understudy.models.catalog import load_causal
from understudy.models.machine import worker_pool
from understudy.models.training import TokenRow
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import COUNT_GRID

TYPES = {"sgd": "customer service dialogue", "europarl": "speech in the European Parliament", "ag_news": "news article"}
ABLATIONS: dict[str, dict[str, Any]] = {
    "seq-pate": {},
    "pseudo-sentences only": {"student_loss": "pseudo-labels", "pseudo_source": "base"},
    "votes": {"answers": "votes"},
    "top answer": {"student_loss": "top-answer"},
    "published loss": {"student_loss": "published"},
    "laplace": {"noise": "laplace"},
    "laplace, 30 questions": {"noise": "laplace", "queries": 30},
    "no filter": {"candidate_filter": "none", "queries": 400},
    "top-k": {"candidate_filter": "top-k"},
    "every position": {"ask": "all"},
    "base writes": {"pseudo_source": "base"},
    "clip and divide": {},
    "project": {},
    "no noise": {},
}


def texts_of(name: str, part: str, count: int | None, *, seed: int = 0) -> list[str]:
    """Texts at random."""
    rows = pq.read_table(DATA / name / f"{part}.parquet")
    rows = rows.take(np.random.default_rng(seed).permutation(rows.num_rows)[:count])
    found: list[str] = rows.column("text").to_pylist()
    return found


def owned_texts(name: str, part: str, count: int | None, *, owners: bool) -> tuple[list[str], list[Any]]:
    """Texts at random, and whose each is: its own, or a speaker's (the chair's are left out)."""
    rows = pq.read_table(DATA / name / f"{part}.parquet")
    if owners:
        rows = rows.filter(pc.invert(rows.column("is_chair")))
    rows = rows.take(np.random.default_rng(0).permutation(rows.num_rows)[:count])
    whose = rows.column("speaker").to_pylist() if owners else list(range(rows.num_rows))
    return rows.column("text").to_pylist(), whose


def student_to_be(name: str, **changes: Any) -> tuple[SeqPATEParameters, TunedModel]:
    return student(TYPES[name], **changes)


def train_all(faculty: Faculty, shards: list[list[TokenRow]]) -> np.ndarray[Any, Any]:
    """All teachers' adapters, ``Float32[M, P]``."""
    size = faculty.recipe.group
    groups = [shards[first : first + size] for first in range(0, len(shards), size)]
    with worker_pool("cpu") as pool:
        found = list(pool.map(faculty.train, [[*each, *[[]] * (size - len(each))] for each in groups]))
    return np.concatenate(found)[: len(shards)]


def teachers(name: str, out: Path, given: argparse.Namespace) -> None:
    """``--teachers`` shards of ``--records`` records (speakers stay together with ``--owners``); the first ``--ask``
    of them are trained."""
    parameters, tuned = student_to_be(name)
    rows, owners = owned_texts(name, "train", given.records, owners=given.owners)
    source = np.random.default_rng(1)
    place = {owner: int(source.integers(given.teachers)) for owner in dict.fromkeys(owners)}
    shards: list[list[TokenRow]] = [[] for _ in range(given.teachers)]
    for text, owner in zip(rows, owners, strict=True):
        if len(shards[place[owner]]) < given.steps and (given.ask is None or place[owner] < given.ask):
            shards[place[owner]].append(tuned.row(text, 0))
    shards = shards[: given.ask]
    start = time.perf_counter()
    np.save(out / f"{name}.npy", train_all(faculty_of(parameters, tuned, steps=given.steps), shards))
    read = sum(map(len, shards)) / len(shards)
    print(f"{len(shards)} teachers, {read:.1f} records read by each: {time.perf_counter() - start:.0f} s", flush=True)


def scores(name: str, tuned: TunedModel, *, test_texts: int) -> dict[str, float]:
    """Held-out perplexity, the base model's, the mean perplexity of batches of 8, and BLEU of continuations."""
    import sacrebleu

    texts = texts_of(name, "test", test_texts, seed=1)
    by_name = {
        each.of: each.value
        for each in measure_released_model(Sample(tuple(texts), None), tuned, tokens=TOKENS, test_texts=test_texts)
    }
    model, halves = tuned.causal, []
    for text in texts:
        tokens = model.encode(text)[:TOKENS]
        halves.append((model.decode(tokens[: TOKENS // 2]), model.decode(tokens[TOKENS // 2 :])))
    sampling = Sampling(0, 0.7, 0.9, TOKENS // 2)
    keys = [(0, str(number)) for number in range(len(halves))]
    answers = list(tuned.sample(keys, sampling=sampling, beginnings=[first for first, _ in halves]))
    said, meant = [each.text.strip() for each in answers], [second.strip() for _, second in halves]
    bleu = {
        f"BLEU-{order}": sacrebleu.BLEU(max_ngram_order=order).corpus_score(said, [meant]).score for order in (3, 4)
    }
    return {"perplexity": float(by_name["synthetic"] or 0), "base": float(by_name[UNTUNED] or 0), **bleu}


def students(name: str, out: Path, given: argparse.Namespace) -> None:
    stacked = np.load(out / f"{name}.npy")[: given.ask]
    for trial in given.names or list(ABLATIONS):
        changes = {"queries": given.queries, "teachers": given.teachers, **ABLATIONS[trial]}
        parameters, tuned = student_to_be(name, **changes)
        budget = Budget(given.epsilon, "1e-6")
        queries = query_count(parameters, budget)
        std = noise_of(parameters, budget).on_mean(queries, given.teachers)
        faculty, student, source = faculty_of(parameters, tuned), Student(tuned, parameters), np.random.default_rng(7)
        prompts = tuned.instructions.prompts
        start = weights = tuned.trainable.start()
        rows: list[TokenRow] = []
        taught: list[Any] = []
        began = time.perf_counter()
        for number, size in enumerate(round_sizes(queries, parameters.rounds)):
            tuned.trainable.load(start if parameters.pseudo_source == "base" else weights)
            here = [0] * (PSEUDO_TEXTS // parameters.rounds)
            written = PseudoTexts(**student.write(here, name=str(number + 1), seed=0)).rows(prompts)
            if parameters.student_loss == "published" and number == 0:
                weights = student.learn(Lessons(written), weights, steps=STUDENT_STEPS, seed=0)["weights"]
            tuned.trainable.load(weights)
            questions = Questions(written, **student.choose(written, size, seed=number))
            mean = np.zeros(questions.candidates.shape)
            if parameters.student_loss != "pseudo-labels":
                query = TeacherAnswers(AnswersSpec(*questions.candidates.shape), faculty, questions, parameters.answers)
                for first in range(0, len(stacked), 16):
                    group = stacked[first : first + 16]
                    mean += query.of_batch(Group(group, len(group)))
                mean /= COUNT_GRID * len(stacked)
            if trial != "no noise":
                sampler = source.normal if parameters.noise == "gaussian" else source.laplace
                mean += sampler(size=mean.shape) * (std if parameters.noise == "gaussian" else std / np.sqrt(2))
            known = questions.candidates >= 0
            if trial in ("clip and divide", "project"):
                shares = np.where(known, np.maximum(mean, 0), 0)
                shares /= np.maximum(shares.sum(1, keepdims=True), 1e-9)
                shares = project(mean, known) if trial == "project" else shares
            else:
                noise = 1e-6 if trial == "no noise" else std
                shares = shares_of(mean, questions, std=noise, loss=parameters.student_loss)
            asked, row = np.unique(questions.row, return_inverse=True)
            places = questions.place.tolist()
            taught += list(zip((row + len(rows)).tolist(), places, questions.candidates, shares, strict=True))
            rows += [written[each] for each in asked.tolist()]
            weights = student.learn(Lessons(rows, taught), weights, steps=STUDENT_STEPS, seed=0)["weights"]
        found = scores(name, tuned, test_texts=given.test_texts)
        row_ = {
            **{
                "set": name,
                "trial": trial,
                "epsilon": given.epsilon,
                "teachers": given.teachers,
                "queries": queries,
                "noise": round(std, 4),
            },
            **{key: round(value, 2) for key, value in found.items()},
            "seconds": round(time.perf_counter() - began),
        }
        print(json.dumps(row_), flush=True)
        with (out / "results.jsonl").open("a") as file:
            file.write(json.dumps(row_) + "\n")


def models(name: str, files: list[str], test_texts: int) -> None:
    """The same scores of any tuned Release."""
    for file in files:
        made = load_release(file)
        known = method_class(made.method).parameters.model_fields
        method = make_method(made.method, {name: made.parameters[name] for name in known if name in made.parameters})
        tuned = method.tuned_model(made, load_causal("builtin"))
        assert tuned is not None
        print(json.dumps({"file": file, **scores(name, tuned, test_texts=test_texts)}), flush=True)
    if not files:
        _, tuned = student_to_be(name)
        tuned.trainable.load(tuned.trainable.start())
        print(json.dumps({"base": name, **scores(name, tuned, test_texts=test_texts)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["teachers", "students", "models"])
    parser.add_argument("names", nargs="*", help="ablations, or Releases")
    parser.add_argument("--set", default="sgd")
    parser.add_argument("--out", type=Path, default=Path("seq_pate"))
    parser.add_argument("--teachers", type=int, default=2000)
    parser.add_argument("--records", type=int, default=12_000)
    parser.add_argument("--ask", type=int, default=None)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--epsilon", default="3")
    parser.add_argument("--owners", action="store_true", help="shards of speakers")
    parser.add_argument("--test-texts", type=int, default=100)
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_intermixed_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "teachers":
        teachers(given.set, given.out, given)
    elif given.what == "students":
        students(given.set, given.out, given)
    else:
        models(given.set, given.names, given.test_texts)


if __name__ == "__main__":
    main()

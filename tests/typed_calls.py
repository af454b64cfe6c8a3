"""What a type checker knows of the verbs. ``make lint`` runs mypy on this file; an unneeded ignore is an error."""

from __future__ import annotations

from pathlib import Path

import understudy as us


def right(corpus: us.Corpus, budget: us.Budget) -> us.Result:
    method = us.DPKPS(top_terms=500)
    forecast: us.Forecast = us.plan(method, budget, labels=["a", "b"], label="ward", price_input=1)
    assert forecast.epsilon
    made: us.Release = us.release(corpus, method, budget, ledger=Path("l.sqlite"), resume=True)
    us.evaluate("notes.csv", "out", metrics="leakage", beside=["floor=floor/"], charge_metrics=0.5)
    us.generate(made, length=4, records=10, llm="none")
    us.evaluate([{"note": "a"}], made_of(corpus, method, budget), text="note", holdout=corpus, beside={"b": "floor/"})
    guided: us.Release = us.release(corpus, us.GuidedEvolution(rounds=3), budget)
    us.generate(guided, records=10, rounds=2)
    us.generate(made, guide_candidates=2)
    us.baseline(labels="a,b", records_per_label=3)
    audit: us.RunAudit = us.audit(corpus, method, budget, canaries=100, records=10, output="out")
    paths: list[us.ReportPaths] = us.report("out", Path("other"), embedder="builtin")
    assert audit
    assert paths
    return us.run(corpus, method, us.Budget(epsilon=6, delta="1e-6"), records_per_label=100, output=Path("out"))


def natural(corpus: us.Corpus, texts: list[str], budget: us.Budget) -> us.Result:
    us.plan(budget)
    us.plan(corpus, us.DPKPS(), us.Budget(3), expected_records=9)
    us.evaluate(texts, {"note": texts}, text="note")
    us.ledger.raise_cap("tickets", epsilon=6, delta=1e-5)
    us.run(texts, budget, dataset="tickets")
    return us.run(corpus, budget=budget)


def made_of(corpus: us.Corpus, method: us.DPKPS, budget: us.Budget) -> us.Result:
    us.run("notes.csv", method, budget, text="note", label="ward", labels=["a"], delimiter=";", records=1)
    us.release([{"note": "a"}], method, budget, text="note", dataset="notes")
    return us.run(corpus, method, budget, records=1)


def wrong(corpus: us.Corpus, method: us.DPKPS, budget: us.Budget) -> None:
    us.plan(method, budget, price_input="1")  # type: ignore[arg-type]
    us.run(corpus, method, budget, recrods=3)  # type: ignore[call-arg]
    us.run(corpus, method, budget, engine="fast")  # type: ignore[arg-type]
    us.release(corpus, method, budget, seed="x")  # type: ignore[arg-type]
    us.generate("a.release", length="4")  # type: ignore[arg-type]
    us.generate("a.release", guide_candidates="4")  # type: ignore[arg-type]
    us.baseline(labels=3)  # type: ignore[arg-type]
    us.evaluate("notes.csv", "out", max_texts="7")  # type: ignore[arg-type]
    us.audit(corpus, method, budget, canaries="7")  # type: ignore[arg-type]

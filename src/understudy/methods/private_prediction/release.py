"""Private prediction, the only code that reads private records.

Amin et al. 2024, *Private prediction for large-scale synthetic text generation*, Algorithm 1:

    for each label, for each of its batches (keyed hash of the record):          batches are disjoint
        prompts = one for each private text of the batch, and one without any
        while private tokens are left:                                           charge "tokens", once for all batches
            draw a text token by token from the prompts' next-token logits       drawing.py
            store it, then use it                                                texts.py

Guarantee:
    Unit: a record, or an owner. All noise and its accounting is one
    :class:`~understudy.privacy.tokens.PrivateTokens`, paid once for all batches, since they are disjoint. What it takes
    of the private rows are the exact integer sums of :class:`~understudy.decoding.sums.TokenSums`; a row's own values
    depend on its own text alone (:mod:`understudy.models.contexts`). Empty batches run like any other. A text is
    stored, and confirmed in the ledger, before it is used; one that a crash lost is drawn again, and a test that was
    open then counts as spent.
"""

from __future__ import annotations

from understudy.corpus.bounding import BoundedCorpus
from understudy.decoding.prompting import build_prompts
from understudy.decoding.workers import at_once
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.private_prediction.batches import sort_into_batches
from understudy.methods.private_prediction.collected import collected
from understudy.methods.private_prediction.drawing import Draw
from understudy.methods.private_prediction.parameters import PrivatePredictionParameters
from understudy.methods.private_prediction.plan import mechanism_of
from understudy.methods.private_prediction.texts import BatchTexts, Drawing, draw_all
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan


def release(
    parameters: PrivatePredictionParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools
) -> Released:
    """Draw texts for every batch until its private tokens are used up, or ``texts_per_batch`` are there."""
    model, prompts = tools.model, tools.prompts
    assert model is not None, "the run loads one where needs_private_model says so"
    assert prompts is not None, "and prompts"
    assert isinstance(plan.budget, Budget), "private prediction protects no secrets"
    asked = build_prompts(
        parameters, prompts, model, label_names=tools.label_names, record_columns=tools.record_columns
    )
    fitting = min(each.most for each in asked.labels)
    if fitting < parameters.private_text_tokens:
        tools.say(
            f"Private texts are cut to {fitting} tokens, not {parameters.private_text_tokens}: no more fit the model's "
            f"window of {model.window}."
        )
    mechanism = mechanism_of(parameters, plan.budget)
    block = model.rows_at_once(mechanism.batch_size)
    rows, tokens = -(-(mechanism.batch_size + 1) // block) * block, max(each.length for each in asked.labels)
    in_flight = at_once(model, tools.noise, rows=rows, tokens=tokens)  # by what is free before a private record is read
    count = tools.labels * parameters.declared_batches
    tools.say(f"Batches to draw texts for: {count}, of which {in_flight} at a time, with {model.model_id}.")
    batches = sort_into_batches(
        corpus,
        lambda text, label: asked.labels[label].private(text),
        labels=tools.labels,
        batches=parameters.declared_batches,
    )
    tools.diary({"private texts cut": batches.cut, "to tokens": [each.most for each in asked.labels]})
    drawing = Drawing(
        model,
        Draw(parameters.clip, mechanism, parameters.top_k, parameters.public_temperature, tools.noise, model.encode),
        mechanism.open(tools.receipt, tools.noise),
        parameters.texts_per_batch or mechanism.tokens,
        tools,
    )
    runs = [
        BatchTexts(drawing, asked.labels[label], batch, label, number)
        for label, of_label in enumerate(batches.of_label)
        for number, batch in enumerate(of_label)
    ]
    return collected(parameters, asked, draw_all(runs, drawing, in_flight=in_flight), mechanism, tools)

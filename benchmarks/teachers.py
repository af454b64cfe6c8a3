"""SeqPATE's teachers: many small adapters trained at once on one trunk, beside one by one with the whole model."""

from __future__ import annotations

from functools import partial
from itertools import islice

from benchmarks import corpora
from benchmarks.measuring import by_turns
from understudy.methods.base import Preparation
from understudy.methods.seq_pate.plan import SeqPATEParameters
from understudy.methods.seq_pate.release import TEACHER_BATCH, TEACHER_RATE, TEACHER_STEPS
from understudy.methods.seq_pate.teachers import Faculty, Recipe
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.methods.tuned.method import model_to_tune
from understudy.models.catalog import load_causal
from understudy.models.lora import Trunk
from understudy.models.training import LoRA, TokenRow
from understudy.schema.labels import LabelSet
from understudy.text.prompts.template import Prompts, WritingParameters, load_template

TOKENS = 64
TEXTS = 4
"""Of a teacher, one for each of its steps."""
_DECLARED = 10**6  # of which nothing here depends


def student(document_type: str, **changes: object) -> tuple[SeqPATEParameters, TunedModel]:
    """The parameters with these changes, and the built-in model as the student that they make of it."""
    parameters = SeqPATEParameters(declared_records=_DECLARED, private_text_tokens=TOKENS, **changes)
    prompts = Prompts(WritingParameters(document_type=document_type), load_template(document_type))
    preparation = Preparation(LabelSet(), 0, model=load_causal("builtin"), prompts=prompts)
    return parameters, model_to_tune(parameters, preparation)[1]


def faculty_of(
    parameters: SeqPATEParameters,
    tuned: TunedModel,
    *,
    steps: int = TEACHER_STEPS,
    group: int = 16,
    trunk: bool = True,
) -> Faculty:
    """Teachers trained ``group`` at a time; without ``trunk`` the whole model runs at every step."""
    lora = LoRA(tuned.causal, rank=parameters.lora_rank, targets=[parameters.adapted], layers=parameters.blocks)
    recipe = Recipe(steps, TEACHER_BATCH, TEACHER_RATE, group)
    return Faculty(lora, Trunk(tuned.causal, layers=parameters.blocks if trunk else None), tuned, recipe)


def stacked(group: int, repetitions: int) -> dict[str, float | None]:
    """Seconds for ``group`` teachers at once, beside as many one by one without a shared trunk."""
    parameters, tuned = student("document")
    texts = next(corpora.texts(group * TEXTS))[0]
    rows = iter([tuned.row(text, 0) for text in texts])
    shards: list[list[TokenRow]] = [list(islice(rows, TEXTS)) for _ in range(group)]
    together = faculty_of(parameters, tuned, steps=TEXTS, group=group)
    alone = faculty_of(parameters, tuned, steps=TEXTS, group=1, trunk=False)

    def one_by_one() -> None:
        for shard in shards:
            alone.train([shard])

    return by_turns(partial(together.train, shards), one_by_one, repetitions=repetitions, device=tuned.causal.device)

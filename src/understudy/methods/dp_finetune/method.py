"""DP-SGD fine-tuning, and its yardstick without privacy: the same trainer without clipping and noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from understudy.base.labels import NOISY, UNIFORM
from understudy.base.parameters import Parameters
from understudy.methods.base import Method, Needs, Preparation, Released, ReleaseTools, needed
from understudy.methods.contents import Contents, Held
from understudy.methods.dp_finetune.plan import (
    LABELS,
    NAME,
    TRAINING,
    DPFinetuneParameters,
    make_plan,
)
from understudy.methods.dp_finetune.tuning import Ready, ready, try_out
from understudy.methods.public import GenerationTools, PublicFacts
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.methods.tuned import texts
from understudy.methods.tuned.model import (
    COUNTS,
    MODEL,
    SamplingParameters,
    held_arrays,
    held_strings,
    tuned_model,
)
from understudy.models.causal import CausalModel
from understudy.privacy.events import GaussianEvent, SubsampledGaussianEvent
from understudy.privacy.gradients import DPSGD
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.text.writing.records import SyntheticRecord

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus


class DPFinetune(Method, DPFinetuneParameters):
    """A local model tuned on the private texts with DP-SGD; any number of texts are then sampled from it.

    >>> DPFinetune(declared_records=20_000, lora_rank=4).declared
    20000
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = DPFinetuneParameters
    generation_parameters: ClassVar[type[Parameters]] = SamplingParameters
    needs: ClassVar[Needs] = Needs(private_model=True, generation_model=True, generation_llm="never")

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        assert isinstance(budget, Budget), "a method that does not protect secrets is given no other"
        return make_plan(self, budget, facts, name=self.name)

    def prepare(self, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> Ready:  # noqa: ARG002
        found, work = try_out(self._ready(preparation), self._mechanism(plan), self)
        for line in [*plan.forecast.lines(), *(work.lines() if self.private else ())]:
            preparation.say(line[:1].upper() + line[1:])
        return found

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.dp_finetune.release import release  # only here: it reads private records

        return release(self, corpus, plan, tools=tools, private=self.private)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        tuned = self.tuned_model(release, needed(tools.model))
        knows_rows = bool(release.schema.columns) and tuned.instructions.shape == "text"
        return texts.generate(self, release, counts, tuned=tuned, tools=tools, knows_rows=knows_rows)

    def label_weights(self, release: Release) -> Sequence[float] | None:
        return release.arrays[COUNTS].tolist() if COUNTS in release.arrays else None

    def tuned_model(self, release: Release, base: CausalModel) -> TunedModel:
        return tuned_model(self, release, base, others={COUNTS})

    def contents(self, release: Release) -> Contents:
        """The tuned weights by name, the prompts in tokens, and label counts where they are not even."""
        arrays = held_arrays(release, others={COUNTS})
        if self.label_sizes != UNIFORM:
            arrays[COUNTS] = Held("float64", (release.schema.label_set.size,))
        charges = {TRAINING: SubsampledGaussianEvent.kind}
        if self.label_sizes == NOISY:
            charges = {LABELS: GaussianEvent.kind, **charges}
        return Contents(charges, arrays, held_strings(release), public_inputs=(MODEL,))

    def _ready(self, preparation: Preparation) -> Ready:
        return ready(
            self,
            needed(preparation.prompts),
            needed(preparation.model),
            label_names=preparation.labels.names,
            record_columns=preparation.record_columns,
        )

    def _mechanism(self, plan: Plan) -> DPSGD:
        mechanism: DPSGD = plan.mechanism(TRAINING)
        return mechanism


class NonPrivateFinetune(DPFinetune):
    """The same training without clipping and noise, to see what privacy costs. NOT PRIVATE: needs
    ``--insecure-no-noise``."""

    name: ClassVar[str] = "nonprivate-finetune"
    private: ClassVar[bool] = False

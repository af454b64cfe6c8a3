"""Few-shot: private exemplars, decoded token by token, which prompt any language model (Tang et al. 2024)."""

from __future__ import annotations

from typing import ClassVar

from understudy.methods.base import Method, Needs
from understudy.methods.few_shot import generate as generating
from understudy.methods.few_shot import release as releasing
from understudy.methods.few_shot.plan import NAME, TOKENS, FewShotParameters, StoppingParameters, fitted, make_plan
from understudy.methods.release_schema import Contents, Held
from understudy.methods.shared.decoding.structured import SCHEMA
from understudy.privacy.events import SubsampledGaussianEvent, SubsampledPureEvent
from understudy.release import Release


class FewShot(Method, FewShotParameters):
    """A few synthetic exemplars of each label with differential privacy, which prompt any language model.

    >>> FewShot(sampling_rate=0.01).subsets
    10
    """

    name: ClassVar[str] = NAME
    stopping_parameters: ClassVar[frozenset[str]] = frozenset(StoppingParameters.model_fields)
    needs: ClassVar[Needs] = Needs(private_model=True, generation_llm="always")
    labels_in_parallel: ClassVar[bool] = True

    fitted = fitted
    plan = make_plan
    prepare = releasing.prepare
    release = releasing.release
    generate = generating.generate
    longest_prompts = generating.longest_prompts
    estimate_calls = generating.estimate_calls

    def contents(self, release: Release) -> Contents:
        """Describe the exemplars: label, noisy tokens, whether it ended by itself, and whether it is shown."""
        count, labels = len(release.strings.get("exemplars", ())), release.schema.label_set.size
        strings: dict[str, int | None] = {"exemplars": count}
        if release.schema.record_columns and SCHEMA in release.strings:
            strings[SCHEMA] = 1
        return Contents(
            {TOKENS: (SubsampledGaussianEvent if self.noise == "gaussian" else SubsampledPureEvent).kind},
            {
                "label": Held("int32", (count,), 0, labels - 1),
                "noisy_tokens": Held("int32", (count,), 0, self.tokens),
                "finished": Held("bool", (count,)),
                "usable": Held("bool", (count,)),
            },
            strings,
        )

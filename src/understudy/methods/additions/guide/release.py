"""The guide, the only code that reads private records.

    guide = per label the sum over records of (count, embedding) + noise           charge "guide"

Guarantee:
    Unit: a record, or an owner of whom at most k records are averaged. The guide is one
    :class:`~understudy.privacy.mechanisms.NoisySum` over :class:`~understudy.methods.additions.guide.sums.GuideSums`,
    joint over labels, or of a large table a :class:`~understudy.privacy.mechanisms.SubsampledSum` over them; all else
    is post-processing of it.
"""

from __future__ import annotations

from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.additions.guide.guide import Guide, noise_check
from understudy.methods.additions.guide.plan import GUIDE
from understudy.methods.additions.guide.sums import GuideSums
from understudy.methods.base import Released, ReleaseTools, needed
from understudy.methods.shared.evolution.embeddings import EMBEDDING
from understudy.privacy.plan import Plan


def release(corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Release a guide of the private records."""
    embedder = needed(tools.embedder)
    tools.say(EMBEDDING)
    measured = tools.measure(GUIDE, GuideSums(plan.query(GUIDE), embedder, tools.dimension), corpus)
    mechanism = plan.mechanism(GUIDE)
    std = 0.0 if measured.seal.noise == "none" else mechanism.noise_std
    return Released(
        {GUIDE: measured.value},
        public_inputs={"embedder": {"source": embedder.model_id, "sha256": embedder.fingerprint}},
        noise_check=noise_check(Guide(measured.value, std), rate=mechanism.rate),
    )

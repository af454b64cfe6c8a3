"""Language models and embedders behind two small protocols (:mod:`understudy.models.types`).

Nothing here loads a model until ``catalog.load_chat("builtin")`` or ``catalog.load_embedder("builtin")`` asks for one.
"""

"""Provide language models and embedders behind two small protocols (:mod:`understudy.models.types`).

No model is loaded before ``catalog.load_chat("builtin")`` or ``catalog.load_embedder("builtin")`` is called.
"""

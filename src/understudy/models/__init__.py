"""Language models and embedders behind two small protocols.

Nothing here loads a model until one is asked for: ``load_chat("builtin")``, ``load_embedder("builtin")``.
"""

from understudy.models.catalog import language_note, load_causal, load_chat, load_embedder, model_languages
from understudy.models.types import ChatModel, ChatRequest, Completion, Embedder, Message

__all__ = [
    "ChatModel",
    "ChatRequest",
    "Completion",
    "Embedder",
    "Message",
    "language_note",
    "load_causal",
    "load_chat",
    "load_embedder",
    "model_languages",
]

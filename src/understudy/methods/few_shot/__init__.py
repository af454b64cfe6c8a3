"""Few-shot generation: a handful of private exemplars, which then prompt any language model (Tang et al. 2024)."""

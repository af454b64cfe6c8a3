"""Few-shot: noisy exemplars, decoded token by token, which then prompt any language model (Tang et al. 2024)."""

"""Few-shot: noisy exemplars, drawn token by token, which then prompt any language model (Tang et al. 2024)."""

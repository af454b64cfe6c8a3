"""Private prediction: texts decoded token by token from the mean of clipped next-token logits (Amin et al. 2024)."""

"""Guided evolution: a language model's texts evolve towards a guide, the only release."""

"""Guided evolution: a guide alone, against which a language model's texts evolve."""

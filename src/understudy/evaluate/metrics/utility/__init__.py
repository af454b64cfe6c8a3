"""Utility of the synthetic texts: train on them, test on real ones."""

"""Typed columns under privacy: noisy marginals, a graphical model fitted to them, and rows sampled from it."""

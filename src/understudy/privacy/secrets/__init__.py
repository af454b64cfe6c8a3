"""(p, r)-secret protection: how often an attacker may guess a secret correctly.

Neighbours are the corpus with and without all records that hold one secret. SecPE (Wang et al. 2025).
"""

"""(p, r)-secret protection: what an attacker may come to believe about a secret.

Neighbours are the corpus with and without all records that hold one secret. SecPE (Wang et al. 2025).
"""

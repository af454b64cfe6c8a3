"""Audits of mechanisms: the real primitive, thousands of times on worst-case neighbours."""

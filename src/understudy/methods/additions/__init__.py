"""Additions to any method: topics as labels, typed columns, a guide. One folder each, behind one protocol (base.py)."""

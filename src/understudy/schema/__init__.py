"""Describe tables: typed columns, labels, dialogue forms and formats of values. Independent of privacy and methods."""

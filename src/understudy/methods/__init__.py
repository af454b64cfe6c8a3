"""The published methods, one folder each, and what they have in common."""

"""Shared by methods whose Release is a tuned model: what learns, what the Release contains, and its texts."""

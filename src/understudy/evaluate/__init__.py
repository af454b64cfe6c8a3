"""The evaluation of a synthetic table: what is read, what is measured, what is released with a charge."""

"""The evaluation of a synthetic table: reading tables, measuring, and releasing metrics with a charge."""

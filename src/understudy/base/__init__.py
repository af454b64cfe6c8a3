"""Provide the parts that do not depend on privacy, models or methods: errors, files, and the reading of cells."""

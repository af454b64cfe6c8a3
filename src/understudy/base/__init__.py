"""What knows nothing of privacy, models or methods: errors, files, and what a table's cells mean."""

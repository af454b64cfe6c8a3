"""What a table is: typed columns, labels, dialogue forms and formats of values. Nothing of privacy or methods."""

"""The report: one HTML file that says what was promised, what came of it, and how good it is."""

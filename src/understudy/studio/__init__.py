"""The studio: pages on this machine that show what budgets buy, what was spent, and what runs made, and that start free
jobs. It charges nothing."""

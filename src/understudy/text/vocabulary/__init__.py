"""Public vocabularies: what a word is, where the terms come from, how they are found in texts, and the noisy top N."""

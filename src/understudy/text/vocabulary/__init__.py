"""Public vocabularies: what a word is, where terms come from, how texts are searched, which noisy counts are real."""

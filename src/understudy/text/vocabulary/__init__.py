"""Public vocabularies: words, sources of terms, searching texts, and estimating which noisy counts are real."""

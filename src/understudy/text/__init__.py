"""Words and prompts: public terms, templates, and asking a language model for texts."""

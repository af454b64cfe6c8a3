"""Words and prompts: public terms, templates, and how a language model is asked for texts."""

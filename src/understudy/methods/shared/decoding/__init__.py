"""Texts predicted token by token, with private texts in the prompts: shared by private prediction and few-shot."""

"""Texts predicted token by token, with private texts in the prompts: what private prediction and few-shot share."""

"""All prompts: templates as data, and the code that fills them."""

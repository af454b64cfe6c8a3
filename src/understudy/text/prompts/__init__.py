"""Every prompt: templates as data, and what fills them."""

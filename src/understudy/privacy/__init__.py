"""Privacy as numbers only: knows no text and no model, imports nothing of the project but its errors."""

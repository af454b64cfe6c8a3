"""Privacy as numbers only: nothing here knows a text or a model, or imports more of the project than its errors."""

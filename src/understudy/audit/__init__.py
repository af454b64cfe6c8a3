"""Attacks that try to break the promise: lower bounds on epsilon beside the promised upper one."""

"""Attacks that try to break the promise: lower bounds on epsilon, to compare with the promised upper one."""

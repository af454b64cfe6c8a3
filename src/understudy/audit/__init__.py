"""Audits: attacks on the privacy guarantee, which give lower bounds on epsilon to compare with the promised one."""

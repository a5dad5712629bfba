"""Billing conformance: whatever a customer does, the account pays what the upstream bills.

A scripted upstream answers as providers do and bills by its own price list; scripted customers call a
gateway in front of it, and leave when they like. What the gateway charges is compared with arithmetic
that shares nothing with it. `python -m billing --help`, run in `tests/`, says how to aim it.
"""

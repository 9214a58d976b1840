"""Registers the simulated accelerator while tests are collected, before any of them runs.

Torch's autograd starts a thread per device at its first backward pass, and knows no device that comes later.
"""

from tests import accelerator

accelerator.load()

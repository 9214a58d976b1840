"""Kinds of layers."""

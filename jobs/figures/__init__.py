"""Figures and tables of a training for the web UI and the command line."""

"""The techniques, one file or folder each; trainers/recipe/techniques.py is their table."""

"""The pictures that stages draw, as small PNG files at `path`; one file per family of stages, and `style` with the common parts."""

"""DiskGNN's segmented disk cache: segments, orders of rows, packing."""

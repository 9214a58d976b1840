"""Arrays in, arrays out: the reference, CPU and CUDA version of every hot operation."""

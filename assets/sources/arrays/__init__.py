"""Files of arrays: NumPy's, safetensors and those of torch, read without running code from them."""

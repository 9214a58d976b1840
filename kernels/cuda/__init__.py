"""CUDA sources, and the device that they are launched on."""

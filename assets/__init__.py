"""What is stored: one stage a file, and how an artifact is written, versioned and read."""

"""The operating system as the store meets it: files and locks, memory and processors, and errors in words."""

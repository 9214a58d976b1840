"""Executors that sample and executors that train, the queue between them, and what watches over both."""

"""Two checkouts run the same pipelines, and everything that they built is compared."""

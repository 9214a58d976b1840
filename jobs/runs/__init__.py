"""How trainings are launched: child processes, cancellation, the Dagster instance."""

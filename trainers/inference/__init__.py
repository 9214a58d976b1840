"""Logits of a trained model, exact or sampled, and the Parquet file of predictions."""

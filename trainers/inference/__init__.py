"""Logits of a trained model, exact or sampled, their scores, and the Parquet file of predictions."""

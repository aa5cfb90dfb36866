"""Labels decided again from stored logits, without a model."""

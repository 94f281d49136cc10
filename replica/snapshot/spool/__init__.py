"""Files that snapshot rows wait in, and files of batches as events."""

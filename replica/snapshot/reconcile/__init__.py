"""Reconcile snapshot rows with the changes that happened while they were read."""

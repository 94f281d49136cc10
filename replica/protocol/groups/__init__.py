"""Event groups: the events that form one transaction, and its identity across servers."""

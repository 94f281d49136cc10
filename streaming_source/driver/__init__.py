"""The Spark application around the planner's process, as far as it can tell, and the folders it keeps there."""

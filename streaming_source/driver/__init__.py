"""What the planner's process can tell of the Spark application around it, and the folders it keeps there."""

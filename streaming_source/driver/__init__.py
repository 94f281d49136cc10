"""The Spark application around the planner process, as far as a data source can see it, and its folders."""

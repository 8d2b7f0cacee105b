"""The validator: rules over sealed runs, in one Spark job for one partition or thousands."""

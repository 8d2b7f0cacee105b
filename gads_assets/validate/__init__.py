"""The validator: rules over sealed runs, one partition or thousands at once."""

"""What machine annotators do to a data set: how they differ, what they favour, how metrics rank them; pure."""

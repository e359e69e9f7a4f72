"""What is evaluated: each kind of set scored for one model."""

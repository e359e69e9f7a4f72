"""Labels that a machine gives, under a bound of their error."""

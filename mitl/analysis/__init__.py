"""From counts and records to tables, plots and the report; pure, without a database."""

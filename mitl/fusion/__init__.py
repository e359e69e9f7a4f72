"""One calibrated probability of a match for each ranked pair, fused from all that is known of it but audits."""

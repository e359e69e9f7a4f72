"""From open pairs to posted HITs: plan, bill, checks, posting."""

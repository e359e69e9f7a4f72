"""Workers' pages: entry, study, list, the page around a HIT, the HIT itself, messages."""

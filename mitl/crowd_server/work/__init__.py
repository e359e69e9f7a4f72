"""Workers' pages: entry, panels, study, the list, the HIT and its submission, qualifications, messages."""

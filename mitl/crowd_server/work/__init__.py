"""Workers' pages: entry, panels, study, the list, the HIT and its submission, qualifications, messages.

No SQL and no operator's page.
"""

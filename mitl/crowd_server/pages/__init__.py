"""Templates, scripts and styles of pages, links of panels, and what every handler needs. No handler lives here."""

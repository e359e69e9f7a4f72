"""Templates, scripts and styles of all pages, and what every handler of one needs. No handler lives here."""

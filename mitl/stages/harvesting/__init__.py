"""From submissions to judgements: fetching, parsing, controls, decisions, caps. Nobody is paid here."""

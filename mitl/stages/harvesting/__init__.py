"""From submissions to judgements: fetching, parsing, controls, decisions, caps."""

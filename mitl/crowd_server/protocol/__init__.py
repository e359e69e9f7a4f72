"""MTurk's shapes: ids, errors, signatures, requirements, the XML and HTML of questions. It knows no row and no page."""

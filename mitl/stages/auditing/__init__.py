"""Audits of a project: what a bound would cost, drawing, what the answers say so far."""

"""The HTML report: what it shows as records, its plots and its pages."""

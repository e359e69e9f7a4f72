"""Rankings against grades: nDCG and Kendall's tau-b."""

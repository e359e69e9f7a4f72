"""What is asked or collected next: strategies for pairs, and for items without a partner."""

"""Planning what to ask next: what answers bring, what they cost, and what no number of them can bring."""

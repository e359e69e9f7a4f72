"""Sentences rated by one to three stars: a kind of campaign as somebody else would bring it."""

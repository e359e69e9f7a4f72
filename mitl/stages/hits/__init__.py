"""Posted HITs beside what the server says of them: finding, ending, extending, deleting.

Nothing is decided about answers.
"""

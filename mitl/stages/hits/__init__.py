"""Posted HITs beside what the server says of them: finding, ending, extending, deleting, and answering them by script.

Nothing is decided about answers.
"""

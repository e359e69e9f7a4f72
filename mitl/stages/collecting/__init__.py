"""Items without partner chosen, what people gave for them shown, and what was accepted handed on."""

"""Five small networks in the spirit of five published ones, trained on generated scenes; one file each."""

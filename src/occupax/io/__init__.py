"""Files of runs and policies: formats, checksums, locks and checks of what is read."""

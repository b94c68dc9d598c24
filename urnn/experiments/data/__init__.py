"""Files of data sets: readers that check what they read, and downloads."""

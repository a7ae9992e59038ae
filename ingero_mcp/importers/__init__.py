"""Files people already have, turned into batches of events. The file read is never changed."""

"""Events as files for other programs: a Perfetto timeline, Parquet, CSV. Pure: rows in, text or bytes out."""

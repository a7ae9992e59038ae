"""Op traces of Megatron jobs: Parquet, one row per operation, with the job's layout in a YAML file beside it."""

"""One readable script per task; one YAML file per row of a paper's table, in `configs/`."""

"""An outcome's reports: Parquet and JSON for machines, a page and a terminal table for people."""

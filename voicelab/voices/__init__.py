"""Voice models stored on this machine: ``store`` (SQLite and files) and ``intake`` (validation of uploads)."""

"""Voice models kept on this machine: ``store`` (SQLite and files), ``intake`` (what uploads go through) and covers."""

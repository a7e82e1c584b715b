"""Results for people and programs: tables and pictures."""

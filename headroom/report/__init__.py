"""What people see: tables, diffs, progress."""

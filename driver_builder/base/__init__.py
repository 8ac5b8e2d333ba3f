"""What does every room need? Errors, reasons, memos, waits, where a bug ends, and metrics."""

"""What a kernel module needs, says and is signed with, and whether a kernel will take it."""

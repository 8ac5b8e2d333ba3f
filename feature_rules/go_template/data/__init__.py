"""What templates compute with: Go values, their texts, numbers and limits."""

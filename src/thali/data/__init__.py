"""What comes in: checks of X, rows in blocks, rows recognised again."""

"""Files that were made to mislead: whole ones of every kind, ways to damage them, bombs, a child that opens them."""

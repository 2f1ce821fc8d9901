"""Files that are whole and bounded: what may be read, how it is written, who holds it."""

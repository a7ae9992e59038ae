"""An export of a store: what is asked for, read through the guard in pieces of bounded size, as the bytes of a file."""

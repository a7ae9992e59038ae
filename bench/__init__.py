"""How fast the parts are: medians and ratios of one run. Not a test: nothing here fails for being slow."""

"""Series out of the store: queries, comparisons, plots."""

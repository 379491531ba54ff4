"""What each allocation is for: the categories, and the two ways to know them (labels and rules)."""

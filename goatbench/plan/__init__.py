"""What a run will take, before it is run: without data and without a GPU."""

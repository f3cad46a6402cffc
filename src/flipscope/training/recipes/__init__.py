"""The trainings of the papers as recipes, one module per paper."""

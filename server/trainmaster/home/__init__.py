"""Names and places: the home, paths of users, names of runs, this program."""

"""What people see of answers: lines of text and grids."""

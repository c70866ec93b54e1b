"""What every test has."""

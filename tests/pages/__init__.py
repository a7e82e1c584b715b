"""Parts of the documentation that are made from the code, between two markers on their pages."""

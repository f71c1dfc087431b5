"""Errors: kinds, codes, remedies and questions to a person, as each face shows them."""

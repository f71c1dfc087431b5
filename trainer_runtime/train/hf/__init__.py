"""What trainings by Hugging Face's libraries share."""

"""Programs that are run as they are: started, listened to, and their checkpoints kept."""

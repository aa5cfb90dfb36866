"""What a job will take, said before it runs."""

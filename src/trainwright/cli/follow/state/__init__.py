"""What is known about a followed job, and what follows from it. Pure: times are arguments."""

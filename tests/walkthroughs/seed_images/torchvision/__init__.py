"""What the programs of the seeds use of torchvision, with the digits of scikit-learn instead of a download."""

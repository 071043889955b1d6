"""What every server of ours needs below HTTP: a certificate authority, and connections that are not lost on stop."""

"""The files of a build: what COPY and ADD read, and what they, WORKDIR and RUN leave in the image."""

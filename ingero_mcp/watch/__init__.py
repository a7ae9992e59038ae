"""The watch of a live server: it looks at the jobs that run, keeps what holds them up, and tells whoever listens."""

"""Routes × examples → scores."""

"""One file per revision, oldest first. A revision is never edited once released."""

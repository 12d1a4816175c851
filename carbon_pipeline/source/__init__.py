"""Where rows come from: what a relation is, which moment a reading shows, and the port that gives both."""

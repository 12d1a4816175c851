"""The lake: who may write how, the three outcomes of a commit, and the port that keeps to them."""

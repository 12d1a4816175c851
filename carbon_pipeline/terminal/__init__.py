"""What the `carbon` command prints and asks: values in, text on the two streams out. It knows no other edge."""

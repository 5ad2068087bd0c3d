"""What a worker says about itself."""

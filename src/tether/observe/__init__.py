"""What a query tells about itself."""

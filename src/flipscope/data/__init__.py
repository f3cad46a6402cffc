"""What models are trained and measured on; nothing here needs torch."""

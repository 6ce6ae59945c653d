"""What selection chooses from when a problem has no winner: data of the nearest device, cached choices."""

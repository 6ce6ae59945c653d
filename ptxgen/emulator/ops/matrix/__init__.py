"""Matrix instructions of a warp and of a warpgroup, their fragments and their rounding."""

"""What ptxgen is measured against. Nothing here is used to compute."""

"""Operations and kernel families that tests register from outside the package."""

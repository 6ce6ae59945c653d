"""Predicted times: boosted trees and the ranking network, their training, their files, and how accurate they are."""

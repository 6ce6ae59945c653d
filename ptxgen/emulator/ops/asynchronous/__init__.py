"""Copies, stores and reductions that complete later: cp.async, bulk and tensor copies, st.async."""

"""Hardware and what stands in for it: drivers, assembling, graph timing, workspaces, tables on the device, checks."""

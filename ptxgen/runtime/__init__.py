"""Running kernels: drivers, assembling, graph timing, workspaces, device tables, and checks of results."""

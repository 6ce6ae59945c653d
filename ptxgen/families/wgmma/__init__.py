"""The family wgmma for Hopper: TMA loads tiles, and warpgroups multiply them by wgmma."""

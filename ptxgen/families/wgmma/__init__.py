"""The family for Hopper: TMA loads tiles, warpgroups multiply them by wgmma."""

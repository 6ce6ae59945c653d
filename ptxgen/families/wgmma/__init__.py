"""The family for Hopper: TMA brings tiles, warpgroups multiply them by wgmma."""

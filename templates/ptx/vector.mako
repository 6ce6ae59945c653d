<%def name="access_type(n, ptx_type)"><% return ptx_type if n == 1 else f"v{n}.{ptx_type}" %></%def>

<%def name="kind(n, kind)"><% return kind if n == 1 else f"v{n}.{kind}" %></%def>

<%def name="banner(text)">

    // ---- ${text}
</%def>

## The one item of each phase: %item counts phases.
<%def name="registers()"></%def>\
<%def name="last_coordinates()"></%def>\
<%def name="phase_number()"></%def>\
<%def name="c_address()"></%def>\
<%def name="tensor_coordinates()"></%def>\
<%def name="phase_of(number)"></%def>\

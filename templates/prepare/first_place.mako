## Binary search in an array of 32-bit integers that do not decrease.

## Moves %low, up to %high, to the first element of an array that is not below %wanted (lt), or is above it (le).
<%def name="first_place(array, name, comparison)">
SEARCH_${name}:
    setp.ge.u32 %p, %low, %high;
    @%p bra FOUND_${name};
    add.u32 %middle, %low, %high;
    shr.u32 %middle, %middle, 1;
    mad.wide.u32 %ptr, %middle, 4, %${array};
    ld.global.u32 %found, [%ptr];
    setp.${comparison}.u32 %below, %found, %wanted;
    @%below add.u32 %low, %middle, 1;
    @!%below mov.u32 %high, %middle;
    bra SEARCH_${name};
FOUND_${name}:
</%def>

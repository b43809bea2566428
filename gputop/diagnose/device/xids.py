"""What the driver's errors, its Xids, mean: by number, as NVIDIA's Xid catalog sorts them."""

from __future__ import annotations

from collections.abc import Mapping

# the catalog has the GPU reset, or more, at once
BROKEN: Mapping[int, str] = {
    46: "the GPU stopped processing",
    48: "a memory error that could not be corrected",
    62: "the controller of its power stopped",
    64: "a bad row of memory could not be replaced",
    74: "an error of an NVLink",
    79: "the GPU has fallen off the bus",
    95: "a memory error that was not contained",
    109: "a change of contexts that did not end",
    110: "a security fault",
    119: "the GPU's own processor does not answer",
    120: "the GPU's own processor failed",
    136: "an NVLink that could not be trained",
    140: "an error of the memory's own correction",
    143: "the GPU could not be initialised",
    158: "the GPU stopped answering",
    171: "an error of its memory that could not be corrected",
    172: "an error of its caches that could not be corrected",
}
# work goes on: the GPU is reset as soon as nothing runs on it
WORN: Mapping[int, str] = {
    63: "a bad row of memory is to be replaced",
    94: "a memory error that was contained",
    156: "a broken part of it is to be put out of use",
}
# of NVLink 5: what has to be done stands in a part of the message that does not come with the number. Where it is
# much, the driver asks for it, too (Xid 154)
LINKS: Mapping[int, str] = dict.fromkeys((*range(144, 151), 155), "an error of an NVLink")
PROGRAMS: Mapping[int, str] = {
    13: "an exception of a kernel",
    31: "a wrong address of a kernel",
    32: "an invalid command of a program",
    43: "a kernel that did not come back",
    45: "a program that was ended",
    69: "an invalid call of a program",
    137: "a wrong address of a kernel on another GPU",
}
# said by the recovery action, a corrected error of the link to a CPU, a test, power smoothing that goes on
HARMLESS = frozenset({106, 107, 121, 154, 162})

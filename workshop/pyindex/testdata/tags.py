"""Writes tags.txt: the tags of some interpreters in the order of the library `packaging`.

A block begins with the interpreter: implementation, minor version, ABI, platform. Then it has its tags, the best one first.
Made with packaging 26.3: python3 tags.py > tags.txt
"""

from packaging import tags


def manylinux(minor, arch):
    names = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    for minor in range(minor, 4 if arch == "x86_64" else 16, -1):
        yield f"manylinux_2_{minor}_{arch}"
        if minor in names:
            yield f"{names[minor]}_{arch}"


cases = [
    ("cp", 12, "cp312", "manylinux_2_28_x86_64", list(manylinux(28, "x86_64"))),
    ("cp", 9, "cp39", "manylinux2014_aarch64", list(manylinux(17, "aarch64"))),
    ("cp", 15, "cp315t", "win_amd64", ["win_amd64"]),
    ("cp", 13, "cp313", "macosx_14_2_arm64", list(tags.mac_platforms((14, 2), "arm64"))),
    ("cp", 8, "cp38", "macosx_10_15_x86_64", list(tags.mac_platforms((10, 15), "x86_64"))),
    ("cp", 11, "cp311", "macosx_12_0_x86_64", list(tags.mac_platforms((12, 0), "x86_64"))),
    ("cp", 14, "cp314", "ios_13_2_arm64_iphoneos", list(tags.ios_platforms((13, 2), "arm64_iphoneos"))),
    ("cp", 14, "cp314", "android_24_arm64_v8a", [f"android_{level}_arm64_v8a" for level in range(24, 15, -1)]),
    ("cp", 12, "cp312", "musllinux_1_2_x86_64", [f"musllinux_1_{minor}_x86_64" for minor in (2, 1, 0)]),
    ("pp", 10, "pypy310_pp73", "win_amd64", ["win_amd64"]),
]
for implementation, minor, abi, platform, platforms in cases:
    print(implementation, minor, abi, platform)
    own = f"{implementation}3{minor}"
    if implementation == "cp":
        listed = list(tags.cpython_tags((3, minor), [abi], platforms))
    else:
        listed = list(tags.generic_tags(own, [abi], platforms))
    listed += tags.compatible_tags((3, minor), own, platforms)
    print(*listed, sep="\n")
    print()

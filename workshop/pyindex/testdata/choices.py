"""Writes choices.txt: the file that pip's rules choose from each project of projects/, for some targets and specifiers.

The rules are written here once more, on the library `packaging`, in the plainest way: all candidates are listed, filtered and
sorted. Lines have project, Python, platform, specifiers, and the file, with tabs between. Made with packaging 26.3:
python3 choices.py > choices.txt

projects/ has the names, requires-python and reasons of yanks of files, as `pip index versions -vvv NAME` listed them in
November 2026.
"""

from pathlib import Path

from packaging import tags, utils
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version


def manylinux(minor, arch):
    names = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    for minor in range(minor, 4 if arch == "x86_64" else 16, -1):
        yield f"manylinux_2_{minor}_{arch}"
        if minor in names:
            yield f"{names[minor]}_{arch}"


PLATFORMS = {
    "manylinux_2_28_x86_64": list(manylinux(28, "x86_64")),
    "manylinux2014_aarch64": list(manylinux(17, "aarch64")),
    "win_amd64": ["win_amd64"],
    "macosx_14_0_arm64": list(tags.mac_platforms((14, 0), "arm64")),
    "linux_riscv64": ["linux_riscv64"],
}
PYTHONS = ["3.6.15", "3.8.20", "3.11.7", "3.12.0", "3.14.2"]
SPECIFIERS = {
    "numpy": ["", ">=1.26,<3", "<2", "==1.26.*", "~=1.21.0", "==2.4.0", "!=2.4.*,<2.5", ">=2.0.0rc1,<2.0.1", ">2.0.0", "<1.0", "===1.26.4", ">=99"],
    "cryptography": ["", "<42", ">=3.4,<4", "==41.0.*", "!=45.*", "~=38.0", "==37.0.3", ">37.0.2,<37.0.4"],
    "setuptools": ["", "<60", "==65.*", "~=58.0", "!=80.*,<81", ">=0.6b1,<0.6c12", "<1"],
    "pytz": ["", "<2020", "==2011.*", "~=2022.1", ">=2004", ">2013b,<2013.9", "==2013b0"],
}

for project, specifiers in SPECIFIERS.items():
    files = []
    for line in (Path(__file__).parent / "projects" / f"{project}.tsv").read_text().splitlines():
        name, requires, reason = line.split("\t")
        try:
            if name.endswith(".whl"):
                _, version, build, wheel = utils.parse_wheel_filename(name)
            elif name.endswith((".tar.gz", ".zip")):
                _, version = utils.parse_sdist_filename(name)
                build, wheel = (), None
            else:
                continue
        except (utils.InvalidWheelFilename, utils.InvalidSdistFilename, InvalidVersion):
            continue
        files.append((name, version, build, wheel, requires, bool(reason)))
    for python in PYTHONS:
        minor = int(python.split(".")[1])
        # Up to 3.7, the ABI had an m for the allocator of memory.
        abi = f"cp3{minor}" + ("m" if minor < 8 else "")
        for platform, platforms in PLATFORMS.items():
            listed = [*tags.cpython_tags((3, minor), [abi], platforms), *tags.compatible_tags((3, minor), f"cp3{minor}", platforms)]
            places = {tag: place for place, tag in enumerate(listed)}
            fit = []
            for name, version, build, wheel, requires, yanked in files:
                try:
                    if requires and not SpecifierSet(requires).contains(Version(python), prereleases=True):
                        continue
                except InvalidSpecifier:
                    pass
                if wheel is None:
                    place = 1_000_000 + [".tar.gz", ".zip"].index(".zip" if name.endswith(".zip") else ".tar.gz")
                else:
                    place = min((places[tag] for tag in wheel if tag in places), default=None)
                    if place is None:
                        continue
                fit.append((version, -place, build, name, yanked))
            for specifier in specifiers:
                wanted = SpecifierSet(specifier)
                allowed = set(wanted.filter({version for version, *_ in fit}))
                left = [one for one in fit if one[0] in allowed]
                pinned = any(one.operator == "===" or one.operator == "==" and not one.version.endswith(".*") for one in wanted)
                if not (pinned and all(one[4] for one in left)):
                    left = [one for one in left if not one[4]]
                # Of equal ones the last one wins.
                best = sorted(left, key=lambda one: one[:3])[-1:]
                print(project, python, platform, specifier, best[0][3] if best else "none", sep="\t")

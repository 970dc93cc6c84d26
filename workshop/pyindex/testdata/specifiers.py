"""Writes specifiers.txt: which versions each specifier allows, as the library `packaging` says.

The first line has the versions. Each other line is a specifier, and a digit for each version (1: it is allowed), or `invalid`.
Made with packaging 26.3. Run it again only with a later one: python3 specifiers.py > specifiers.txt
"""

import itertools
from packaging.specifiers import InvalidSpecifier, Specifier

PUBLIC = [
    epoch + release + suffix
    for epoch, releases in (("", ("0", "1", "1.0.1", "1.1", "1.10", "2.0", "2024.1.15", "1.0.0.0.1")), ("1!", ("1", "1.1")))
    for release in releases
    for suffix in ("", ".dev1", "a1", "a1.dev2", "a1.post1", "rc2", ".post1", ".post2.dev1", "b3.post0.dev1")
]
LABELLED = [version + label for version in PUBLIC[::4] for label in ("+cpu", "+1.2")]
OPERATORS = ["==", "!=", "<=", ">=", "<", ">", "~="]

versions = PUBLIC + LABELLED
wanted = PUBLIC + LABELLED[::7] + ["1.0", "1.0.0", "01.1", "1.0.1.0", "3"]
specifiers = [operator + version for operator, version in itertools.product(OPERATORS, wanted)]
specifiers += [operator + version + ".*" for operator, version in itertools.product(["==", "!=", ">="], ["0", "1", "1.0", "1.1", "1.0.0", "2024", "1!1", "1a1"])]
specifiers += ["===1.0", "===1", "===1.1+cpu", "===1.1+CPU"]

print(*versions)
for specifier in specifiers:
    try:
        parsed = Specifier(specifier)
    except InvalidSpecifier:
        print(specifier + "|invalid")
        continue
    print(specifier + "|" + "".join(str(int(parsed.contains(version, prereleases=True))) for version in versions))

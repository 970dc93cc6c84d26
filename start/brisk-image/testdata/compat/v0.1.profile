{
"brisk_profile": 1,
"brisk": "0.1.0",
"command": ["bin/run", {"hex": "ff"}],
"runs": 2,
"ready": ["exit", 1500],
"roots": [
["/opt/compat", "image"],
["/", "system"]
],
"files": [
[0, "app/map", 10000, null],
[0, "app/bin/run", 9000, null],
[1, "etc/ld.so.cache", 4096, "0101010101010101010101010101010101010101010101010101010101010101"]
],
"directories": [
[0, "app"],
[0, "app/bin"]
],
"steps": [
["found", 0, "bin", 1, 2],
["pages", 1, 1, 2, 10, 2],
["absent", 1, "run.cfg", 11, 2],
["pages", 0, 0, 1, 12, 2],
["pages", 2, 0, 1, 13, 1],
["pages", 1, 0, 1, 20, 1]
]
}

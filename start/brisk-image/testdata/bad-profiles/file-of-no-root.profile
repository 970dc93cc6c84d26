{
"brisk_profile": 1,
"brisk": "0.1.0",
"command": ["app"],
"runs": 1,
"roots": [
["/opt/app", "image"]
],
"files": [
[1, "lib/a.so", 20000, null]
],
"directories": [
[0, "lib"]
],
"steps": [
["found", 0, "a.so", 5, 1],
["pages", 0, 0, 5, 10, 1]
]
}

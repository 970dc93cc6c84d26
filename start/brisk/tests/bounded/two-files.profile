{
"brisk_profile": 1,
"brisk": "0.1.0",
"command": ["zeros"],
"runs": 1,
"ready": ["exit", 1500],
"roots": [
["/opt/bomb", "image"]
],
"files": [
[0, "00", 33554432, null],
[0, "zeros", 1099511627776, null]
],
"directories": [
[0, ""]
],
"steps": [
["pages", 0, 0, 8, 11, 1],
["pages", 1, 0, 8, 12, 1],
["absent", 0, "none", 13, 1]
]
}

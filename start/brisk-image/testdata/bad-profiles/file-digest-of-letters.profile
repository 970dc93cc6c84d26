{
"brisk_profile": 1,
"brisk": "0.1.0",
"command": ["app"],
"runs": 1,
"roots": [
["/opt/app", "image"]
],
"files": [
[0, "lib/a.so", 20000, "zz49b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262af"]
],
"directories": [
[0, "lib"]
],
"steps": [
["found", 0, "a.so", 5, 1],
["pages", 0, 0, 5, 10, 1]
]
}

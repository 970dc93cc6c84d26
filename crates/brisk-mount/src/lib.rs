#![doc = "Placeholder of the first commit."]

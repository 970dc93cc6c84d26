/*!
Finds the best file of a Python package on the stored bytes of its index page.

The central type is [`IndexTable`], a view of what is stored of a page. [`table_of_page`] makes a table of a page once, when
the page comes: its versions have keys that sort as PEP 440 orders them, and what is compared is apart
from what is only printed (see `docs/pyindex.md`). A [`Chooser`] finds the best file in it. Nothing is parsed for that, and nothing is allocated for a
version or a file.

# Example

```
use pyindex::{Chooser, IndexTable, Interpreter, PageForm, ProjectName, Specifiers, Tags, Target, Wanted, platforms, table_of_page};

let page = br#"{"meta": {"api-version": "1.0"}, "name": "some", "files": [
    {"filename": "some-1.0-py3-none-any.whl", "url": "some-1.0-py3-none-any.whl", "hashes": {}},
    {"filename": "some-2.0-py3-none-any.whl", "url": "some-2.0-py3-none-any.whl", "hashes": {}, "requires-python": ">=3.13"},
    {"filename": "some-2.1.tar.gz", "url": "some-2.1.tar.gz", "hashes": {}, "yanked": "breaks builds"}
]}"#;
let address = "https://index.example/simple/some/".parse()?;
let bytes = table_of_page(&ProjectName::parse("Some")?, &address, PageForm::Json, page)?;

let table = IndexTable::view((&*bytes).into())?.expect("it was just made");
let tags = Tags::of(&Interpreter::cpython((3, 12), platforms("manylinux_2_28_x86_64")?));
let mut chooser = Chooser::new(Target::new("3.12.4", tags).expect("a version"));
let specifiers = Specifiers::parse(">=0.9,<3")?;
let wanted = Wanted::of(&specifiers);
let choice = chooser.choose(&table, &wanted)?.expect("1.0 is allowed");
let file = table.file(choice.version, choice.file)?;
assert_eq!(file.url, "https://index.example/simple/some/some-1.0-py3-none-any.whl");

let newer = chooser.explain(&table, &wanted, Some(choice))?;
assert_eq!(newer[0].why.to_string(), "it is yanked (breaks builds); only == takes it, if all else is yanked");
assert_eq!(newer[1].why.to_string(), "its files that would do need another Python (>=3.13; 1 files)");
# Ok::<(), Box<dyn std::error::Error>>(())
```

# Trust

Pages and tables are untrusted. No page and no table makes anything here panic. What a page takes in memory is bounded by a
small factor of its length. A table that is damaged gives errors or wrong answers.

# What this crate does not do

* Resolve: it looks at the requirements that it is given, and not at what the files of packages require.
* Download files, or install them.
*/
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod choice;
mod digest;
mod file_name;
mod known_texts;
mod page;
mod parts;
mod project_name;
mod sort_key;
mod specifiers;
mod table;
mod tags;
mod version_parts;

pub use choice::{Choice, Chooser, Refused, Target, Wanted, Why};
pub use page::{LARGEST_PAGE, PageError, PageForm, decoded, table_of_page, table_of_whole_page};
pub use parts::in_parts;
pub use project_name::{ProjectName, ProjectNameError};
pub use specifiers::{SpecifierError, Specifiers};
pub use table::{FileRecord, IndexTable, LeftOut, PackageTable};
pub use tags::{Interpreter, PlatformError, Tags, platforms};

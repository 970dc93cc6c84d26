//! Books whose records get a new field, and tasks that read them. It writes a new file and a copy of that.
//!
//! ```text
//! cargo run --release -p brisk-objects --features tokio --example tasks -- books.db
//! ```

use std::path::Path;

use brisk_objects::{AsyncDatabase, Error, Options, Record};

/// The book of the first version of this program.
mod first {
    #[derive(brisk_objects::Record)]
    #[record(name = "books")]
    pub struct Book {
        #[key]
        pub id: u32,
        pub title: String,
    }
}

#[derive(Record, Debug, Clone, PartialEq)]
#[record(name = "books")]
struct Book {
    #[key]
    id: u32,
    #[index]
    title: String,
    pages: Option<u32>,
}

const BOOKS: u32 = 10_000;

/// What the first version of this program has written.
fn write_first(path: &Path) -> Result<(), Error> {
    if path.exists() {
        let message = format!("{} exists already; name a new file", path.display());
        return Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, message).into());
    }
    let options = Options::new().collection::<first::Book>();
    // SAFETY: nothing but this program writes to the file.
    let db = unsafe { options.open(path) }?;
    db.write(|tx| {
        (0..BOOKS).try_for_each(|id| {
            let title = format!("book {id}");
            tx.insert(&first::Book { id, title }).map(drop)
        })
    })
}

fn migrate(path: &Path) -> Result<brisk_objects::Database, Error> {
    let options = || {
        Options::new()
            .collection::<Book>()
            .migration::<first::Book, Book, _>(|old| {
                Ok::<_, Error>(Book {
                    id: old.id(),
                    title: old.title().to_owned(),
                    pages: None,
                })
            })
    };
    // SAFETY: nothing but this program writes to the file.
    for change in unsafe { options().dry_run(path) }? {
        println!(
            "{} records: {} becomes {}",
            change.records, change.from, change.to
        );
    }
    // SAFETY: as above.
    let db = unsafe { options().open(path) }?;
    db.copy_to(&path.with_extension("copy"))?;
    Ok(db)
}

/// Writes the file, migrates it, and reads it.
///
/// # Errors
///
/// Those of the database, and `AlreadyExists` if there is a file.
pub async fn run(path: &Path) -> Result<(), Error> {
    write_first(path)?;
    let db = AsyncDatabase::new(migrate(path)?)?;
    let book = db.get::<Book>(42_u32).await?.expect("it was inserted");
    let books = db.get_many::<Book, _>([3_u32, 1, BOOKS]).await?;
    assert_eq!((&*book.title, books.len()), ("book 42", 3));
    let titles = db
        .read(|snapshot| {
            let books = snapshot.query::<Book>().by(Book::TITLE);
            books.range("book 99".."book 9:").count()
        })
        .await?;
    db.write(move |tx| {
        tx.update(&Book {
            pages: Some(7),
            ..book
        })
    })
    .await?;
    println!("{titles} titles begin with \"book 99\"; {:?}", db.counts());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let path = std::env::args_os().nth(1).unwrap_or("books.db".into());
    match run(Path::new(&path)).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tasks: {e}");
            std::process::ExitCode::from(2)
        }
    }
}

use std::io::{self, Write};

use brisk_terminal::answer::Answer;
use brisk_terminal::db_args::DbGetArgs;
use brisk_terminal::messages::say;

use crate::key_words::{parse_whole_key, shown_key};
use crate::opening::open;
use crate::record_json::Shown;

pub(crate) fn run(args: &DbGetArgs) -> anyhow::Result<Answer> {
    let database = open(&args.file)?;
    let collection = database.collection(&args.collection)?;
    let schema = collection.schema();
    let key = parse_whole_key(schema, &args.key, "KEY")?;
    match collection.get(&key)? {
        Some(record) => {
            let text = serde_json::to_string_pretty(&Shown::record(schema, &record))?;
            writeln!(io::stdout().lock(), "{text}")?;
            Ok(Answer::Yes)
        }
        None => {
            let key = shown_key(schema, &key);
            say(&format!(
                "brisk: {} has no record with the key {key}",
                schema.collection
            ));
            Ok(Answer::No)
        }
    }
}

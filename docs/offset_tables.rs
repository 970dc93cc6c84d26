//! What tests compare the pages of formats with: the tables of a page, and the offsets of the code.

/// The rows `offset, size, field` of the first table of `page` behind the heading `title`.
pub fn table_of(page: &'static str, title: &str) -> Vec<(usize, usize, &'static str)> {
    let from = page.find(&format!("\n## {title}\n")).unwrap();
    let rows = page[from..]
        .lines()
        .skip_while(|line| !line.starts_with("| offset"))
        .skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let mut next = || cells.next().unwrap();
            (next().parse().unwrap(), next().parse().unwrap(), next())
        })
        .collect()
}

/// The rows of a wire struct, in the order of its fields.
macro_rules! rows {
    ($wire:ty { $($field:ident),* }) => {{
        let names = [$(stringify!($field)),*];
        let starts = [$(std::mem::offset_of!($wire, $field)),*];
        let ends = starts.iter().skip(1).copied().chain([size_of::<$wire>()]);
        let rows = names.iter().zip(starts).zip(ends);
        rows.map(|((name, start), end)| (start, end - start, *name)).collect::<Vec<_>>()
    }};
}
pub(crate) use rows;

//! Rows that hold every pair of values of any two options.

use std::collections::BTreeSet;

/// Rows of one value (a number below its size) per axis, so that each pair of values of any two
/// axes is in some row. The same sizes give the same rows.
pub fn all_pairs(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut left = BTreeSet::new();
    for (a, &a_size) in sizes.iter().enumerate() {
        for (b, &b_size) in sizes.iter().enumerate().skip(a + 1) {
            for (x, y) in (0..a_size).flat_map(|x| (0..b_size).map(move |y| (x, y))) {
                left.insert(((a, x), (b, y)));
            }
        }
    }
    let mut rows = Vec::new();
    while let Some(&(first, second)) = left.first() {
        let mut row: Vec<Option<usize>> = vec![None; sizes.len()];
        row[first.0] = Some(first.1);
        row[second.0] = Some(second.1);
        for axis in 0..sizes.len() {
            if row[axis].is_some() {
                continue;
            }
            // The value with the most pairs that no row has, beside what the row has.
            let gain = |value: usize| {
                let set = row
                    .iter()
                    .enumerate()
                    .filter_map(|(a, x)| x.map(|x| (a, x)));
                set.filter(|&other| {
                    let pair = if other.0 < axis {
                        (other, (axis, value))
                    } else {
                        ((axis, value), other)
                    };
                    left.contains(&pair)
                })
                .count()
            };
            // Among equals another one for each row, so that no value is rare.
            let turn = rows.len();
            row[axis] = (0..sizes[axis])
                .map(|i| (i + turn) % sizes[axis])
                .rev()
                .max_by_key(|&value| gain(value));
        }
        let row: Vec<usize> = row.into_iter().map(Option::unwrap_or_default).collect();
        for (a, &x) in row.iter().enumerate() {
            for (b, &y) in row.iter().enumerate().skip(a + 1) {
                left.remove(&((a, x), (b, y)));
            }
        }
        rows.push(row);
    }
    rows
}

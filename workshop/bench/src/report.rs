//! Results as text for people, in Markdown, and as a page with pictures.

use brisk::page::chart::{self, Whose};
use brisk_lab::{Spread, escaped_text};
use brisk_terminal::names::printable;
use brisk_terminal::page::Page;

use crate::results::{Kind, Results};
use crate::table::{Group, Shown, number};

/// Kept results of any experiment.
pub(crate) trait Report {
    /// Tables for people.
    fn text(&self) -> String;

    /// Tables in Markdown, the goals first. The best median is in bold.
    fn markdown(&self) -> String;

    /// The heading of its part of a page.
    fn title(&self) -> &'static str;

    /// Draws all results.
    fn draw(&self, page: &mut Page);
}

impl<K: Kind> Results<K> {
    fn rng(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(K::seed(&self.settings))
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups = K::groups(self, &mut self.rng());
        groups.retain(|group| !group.rows.is_empty());
        groups
    }

    fn remarks(&self) -> Vec<String> {
        let missing = self.missing.iter();
        let missing = missing.map(|left| format!("{}: {}.", left.what, left.reason));
        missing.chain(K::remarks(self)).collect()
    }
}

impl<K: Kind> Report for Results<K> {
    fn text(&self) -> String {
        let mut text = K::conditions(self) + "\n";
        for group in self.groups() {
            text += &group.table.plain();
        }
        for other in K::others(self) {
            text += &other.plain();
        }
        text += &K::goals(self, &mut self.rng()).plain();
        for line in self.remarks() {
            text += &format!("\n{}", printable(&line));
        }
        text + "\n"
    }

    fn markdown(&self) -> String {
        let mut text = K::goals(self, &mut self.rng()).markdown();
        for group in self.groups() {
            text += &group.table.markdown();
        }
        for other in K::others(self) {
            text += &other.markdown();
        }
        text += &format!("{}\n", escaped_text(&K::conditions(self)));
        for line in self.remarks() {
            text += &format!("\n* {}", escaped_text(&line));
        }
        text + "\n"
    }

    fn title(&self) -> &'static str {
        K::TITLE
    }

    fn draw(&self, page: &mut Page) {
        page.anchor(2, K::NAME, K::TITLE);
        page.note(&K::conditions(self));
        draw_table(page, &K::goals(self, &mut self.rng()));
        for Group { table, unit, rows } in self.groups() {
            let lines = rows.into_iter().map(|(name, values)| chart::Row {
                figure: Spread::of(&values).map_or(String::new(), |spread| {
                    format!("{} {unit}", number(spread.median))
                }),
                whose: match &*name {
                    name if K::BRISK.contains(&name) => Whose::Brisk,
                    name if K::PLAIN.contains(&name) => Whose::Own,
                    _ => Whose::Rival,
                },
                name,
                values,
            });
            let lines: Vec<_> = lines.collect();
            let caption = match chart::is_log(&lines, chart::Lines::default()) {
                true => "The axis is logarithmic: equal steps are equal ratios.",
                false => "Each dot is one run.",
            };
            page.heading(3, table.title());
            let picture = chart::box_plots(table.title(), &lines, chart::Lines::default(), unit);
            page.figure(&picture, caption);
            table.draw(page);
        }
        for other in K::others(self) {
            draw_table(page, &*other);
        }
        page.list(&self.remarks());
        page.note(&self.machine.words());
    }
}

fn draw_table(page: &mut Page, table: &dyn Shown) {
    if !table.is_empty() {
        page.heading(3, table.title());
        table.draw(page);
    }
}

/// A page with pictures of results, each with the name and the text of its file, which the page also holds.
pub(crate) fn page_of(all: &[(String, String, &dyn Report)]) -> String {
    let titles: Vec<_> = all.iter().map(|(_, _, report)| report.title()).collect();
    let title = titles.join("; ");
    let mut page = Page::default();
    page.heading(1, &title);
    for (name, text, report) in all {
        report.draw(&mut page);
        page.download(name, "application/json", text.as_bytes());
    }
    page.finish(&title)
}

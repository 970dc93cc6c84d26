/*!
Pages with figures: one HTML file that needs nothing else.

A [`Page`] holds text, tables and pictures. Colours are variables of the style, so a page follows
its reader's light or dark setting. Words also say what a colour says. No script runs in a page. Every name comes
from outside, and is escaped.
*/

use std::borrow::Cow;

use data_encoding::BASE64;

use crate::names::printable;

const STYLE: &str = include_str!("style.css");

/// The style of all pictures, with their colours.
pub const CHART_STYLE: &str = include_str!("chart.css");

/// A page, or a part of one.
#[derive(Debug, Default)]
pub struct Page {
    body: String,
}

impl Page {
    /// A heading of this level.
    pub fn heading(&mut self, level: u8, text: &str) -> &mut Self {
        self.html(&format!("<h{level}>{}</h{level}>\n", escaped(text)))
    }

    /// A heading with an id, for links.
    pub fn anchor(&mut self, level: u8, id: &str, text: &str) -> &mut Self {
        let (id, text) = (escaped(id), escaped(text));
        self.html(&format!("<h{level} id=\"{id}\">{text}</h{level}>\n"))
    }

    /// A paragraph of text.
    pub fn paragraph(&mut self, text: &str) -> &mut Self {
        self.html(&format!("<p>{}</p>\n", escaped(text)))
    }

    /// A paragraph in smaller print, for what readers may skip.
    pub fn note(&mut self, text: &str) -> &mut Self {
        self.html(&format!("<p class=\"soft\">{}</p>\n", escaped(text)))
    }

    /// Words of a command line.
    pub fn code(&mut self, text: &str) -> &mut Self {
        self.html(&format!("<p><code>{}</code></p>\n", escaped(text)))
    }

    /// A list with bullets; nothing if it is empty.
    pub fn list(&mut self, items: &[String]) -> &mut Self {
        if items.is_empty() {
            return self;
        }
        let items: String = items
            .iter()
            .map(|item| format!("<li>{}</li>\n", escaped(item)))
            .collect();
        self.html(&format!("<ul>\n{items}</ul>\n"))
    }

    /// A picture as SVG, with a caption.
    pub fn figure(&mut self, picture: &str, caption: &str) -> &mut Self {
        let caption = escaped(caption);
        self.html(&format!(
            "<figure>\n{picture}<figcaption>{caption}</figcaption>\n</figure>\n"
        ))
    }

    /// A table. All columns but the first hold numbers, or all hold text if `text` is set.
    pub fn table<const N: usize>(
        &mut self,
        head: [&str; N],
        rows: &[[String; N]],
        text: bool,
    ) -> &mut Self {
        let class = match text {
            true => " class=\"text\"",
            false => "",
        };
        let cells = |cells: &[String; N], tag: &str| -> String {
            let cell = |cell: &String| format!("<{tag}{class}>{}</{tag}>", escaped(cell));
            cells.iter().map(cell).collect()
        };
        let head = cells(&head.map(str::to_owned), "th");
        let rows: String = rows
            .iter()
            .map(|row| format!("<tr>{}</tr>\n", cells(row, "td")))
            .collect();
        self.html(&format!(
            "<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
        ))
    }

    /// A link that saves `content` as a file of this name. The page itself holds the content.
    pub fn download(&mut self, name: &str, kind: &str, content: &[u8]) -> &mut Self {
        let name = escaped(name);
        let data = BASE64.encode(content);
        self.html(&format!(
            "<p><a download=\"{name}\" href=\"data:{kind};base64,{data}\">{name}</a></p>\n"
        ))
    }

    /// HTML, as it is.
    pub fn html(&mut self, html: &str) -> &mut Self {
        self.body.push_str(html);
        self
    }

    /// The whole file.
    pub fn finish(&self, title: &str) -> String {
        let (title, body) = (escaped(title), &self.body);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\" />\n\
             <title>{title}</title>\n<style>\n{CHART_STYLE}{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
        )
    }
}

/// Text from outside, escaped for HTML and for its attributes.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let text = printable(text);
    match text.contains(['&', '<', '>', '"', '\'']) {
        true => Cow::Owned(encoded(&text)),
        false => text,
    }
}

/// Text with references in place of the characters that are markup in HTML or in its attributes. All others stay.
pub fn encoded(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_is_markup() {
        assert_eq!(escaped("a.b"), "a.b");
        assert_eq!(
            escaped("<a href=\"x\" class='y'>&\u{202e}"),
            "&lt;a href=&quot;x&quot; class=&#39;y&#39;&gt;&amp;\\u{202e}"
        );
        let mut page = Page::default();
        page.heading(1, "<b>")
            .anchor(2, "\"x", "<b>")
            .paragraph("<b>")
            .note("<b>")
            .code("<b>")
            .list(&["<b>".to_owned()])
            .figure("", "<b>")
            .table(["<b>"], &[["<b>".to_owned()]], true)
            .download("<b>", "text/plain", b"<b>");
        assert!(!page.finish("<b>").contains("<b>"));
    }
}
